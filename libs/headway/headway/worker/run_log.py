"""The log of a run: structured lines that stay with it, and go to Python's logging as well.

ctx.log.info("customer synced", customer=42, rows=1200)
"""

import logging
import traceback
from contextvars import ContextVar
from typing import Any, Protocol

from headway_contract.progress import Level

# The last part of a stack tells most, and fields have a limit.
_STACK_LIMIT = 3000

# Whose run's code is running, for whoever captures Python's logging.
current_reporter: ContextVar["Reporter | None"] = ContextVar("headway_reporter", default=None)


class Reporter(Protocol):
    """Who keeps what a run tells of itself. May be called from any thread."""

    def progress(self, percent: float | None, message: str | None) -> None:
        """How far the run is."""
        ...

    def line(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        """One line of its log."""
        ...


class RunLog:
    """Handed to a body as `ctx.log`."""

    def __init__(self, job: str, reporter: Reporter | None) -> None:
        self._logger = logging.getLogger(f"headway.job.{job}")
        self._reporter = reporter

    def debug(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that helps whoever looks for a fault."""
        self._write("debug", message, arguments, fields)

    def info(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that happened as it should."""
        self._write("info", message, arguments, fields)

    def warning(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that should not have happened and does no harm."""
        self._write("warning", message, arguments, fields)

    def error(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that went wrong."""
        self._write("error", message, arguments, fields)

    def critical(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that somebody must see to at once."""
        self._write("critical", message, arguments, fields)

    def exception(self, message: object, *arguments: object, **fields: Any) -> None:
        """Something that went wrong, with the exception that is being handled."""
        self._write(
            "error",
            message,
            arguments,
            {**fields, "exception": traceback.format_exc()[-_STACK_LIMIT:]},
        )

    def _write(
        self, level: Level, message: object, arguments: tuple[object, ...], fields: dict[str, Any]
    ) -> None:
        text = str(message) % arguments if arguments else str(message)
        number = logging.getLevelNamesMapping()[level.upper()]
        if self._logger.isEnabledFor(number):
            said = " ".join((_one_line(text), *(f"{key}={fields[key]!r}" for key in fields)))
            self._logger.log(number, "%s", said)
        if self._reporter is not None:
            self._reporter.line(level, text, fields)


def _one_line(text: str) -> str:
    """Escape line breaks and other control characters, which would forge lines of the log."""
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else ascii(part)[1:-1] for part in text)


class CapturedLogging(logging.Handler):
    """Adds what a job's code says through Python's logging to the log of its run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record, unless it is one of Headway's own."""
        reporter = current_reporter.get()
        if reporter is None or record.name.partition(".")[0] in ("headway", "nats"):
            return
        try:
            fields: dict[str, Any] = {"logger": record.name}
            if record.exc_info:
                stack = "".join(traceback.format_exception(*record.exc_info))
                fields["exception"] = stack[-_STACK_LIMIT:]
            reporter.line(_level(record.levelno), record.getMessage(), fields)
        except Exception:  # noqa: BLE001 - a line that cannot be told must not fail the job
            self.handleError(record)


def _level(number: int) -> Level:
    steps: tuple[tuple[int, Level], ...] = (
        (logging.CRITICAL, "critical"),
        (logging.ERROR, "error"),
        (logging.WARNING, "warning"),
        (logging.INFO, "info"),
    )
    return next((level for least, level in steps if number >= least), "debug")
