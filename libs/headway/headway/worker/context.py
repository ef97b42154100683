"""The first argument of a job's body: its run, its log, and how to activate dependents.

    ctx.log.info("customer synced", customer=42, rows=1200)

Log lines stay with the run, and go to Python's logging as well.
"""

import logging
import traceback
from collections.abc import Awaitable, Iterable
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from headway_contract.orders import OrderedRun
from headway_contract.worker_protocol import LEVELS, Level

from headway.errors import ActivationUnavailable

# The last part of a stack says most, and fields have a limit.
_STACK_LIMIT = 3000

# The reporter of the run whose code is running, for captured logging.
current_reporter: ContextVar["Reporter | None"] = ContextVar("headway_reporter", default=None)


class Reporter(Protocol):
    """Keeps progress and log lines of a run. May be called from any thread."""

    def progress(self, percent: float | None, message: str | None) -> None:
        """Keep how far the run is."""

    def line(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        """Keep one log line."""


class RunLog:
    """The log of a run: `ctx.log`."""

    def __init__(self, job: str, reporter: Reporter | None) -> None:
        self._name = f"headway.job.{job}"
        self._reporter = reporter

    def debug(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level debug."""
        self._write("debug", message, arguments, fields)

    def info(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level info."""
        self._write("info", message, arguments, fields)

    def warning(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level warning."""
        self._write("warning", message, arguments, fields)

    def error(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level error."""
        self._write("error", message, arguments, fields)

    def critical(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level critical."""
        self._write("critical", message, arguments, fields)

    def exception(self, message: object, *arguments: object, **fields: Any) -> None:
        """Log at level error, with the current exception."""
        fields["exception"] = traceback.format_exc()[-_STACK_LIMIT:]
        self._write("error", message, arguments, fields)

    def _write(
        self, level: Level, message: object, arguments: tuple[object, ...], fields: dict[str, Any]
    ) -> None:
        text = str(message) % arguments if arguments else str(message)
        number = logging.getLevelNamesMapping()[level.upper()]
        logger = logging.getLogger(self._name)
        if logger.isEnabledFor(number):
            line = " ".join((_one_line(text), *(f"{key}={fields[key]!r}" for key in fields)))
            logger.log(number, "%s", line)
        if self._reporter is not None:
            self._reporter.line(level, text, fields)


def _one_line(text: str) -> str:
    """Escape control characters, which could forge log lines."""
    if text.isprintable():
        return text
    return "".join(part if part.isprintable() else ascii(part)[1:-1] for part in text)


class CapturedLogging(logging.Handler):
    """Adds records of Python's logging to the log of the current run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, unless it is one of Headway's own."""
        reporter = current_reporter.get()
        if reporter is None or record.name.partition(".")[0] in ("headway", "nats"):
            return
        try:
            fields: dict[str, Any] = {"logger": record.name}
            if record.exc_info:
                stack = "".join(traceback.format_exception(*record.exc_info))
                fields["exception"] = stack[-_STACK_LIMIT:]
            # Python's levels are 10, 20, 30, 40 and 50.
            level = LEVELS[min(max(record.levelno // 10, 1), len(LEVELS)) - 1]
            reporter.line(level, record.getMessage(), fields)
        except Exception:  # noqa: BLE001 - a line that cannot be kept must not fail the job
            self.handleError(record)


class ActivationRequest(NamedTuple):
    """An activation that a body requests; the default key is its number."""

    manifest: str
    input: Any = None
    key: str | None = None


class Activator(Protocol):
    """Activates dependents for a run."""

    def activate(self, requests: list[ActivationRequest]) -> Awaitable[None]:
        """Activate all of them or none; done when awaited, or at once in a plain function."""


class Context:
    """The first argument of a job's body."""

    def __init__(
        self,
        ordered: OrderedRun,
        job: str,
        activator: Activator | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.job = job
        # The id of this attempt; use it as an idempotency key in other systems.
        self.run = ordered.run
        # The same over all attempts.
        self.work = ordered.work
        self.manifest = ordered.manifest
        # The number of this counted attempt, from 1, and the maximum.
        self.attempt = ordered.attempt
        self.attempts = ordered.attempts
        # The time for which the schedule fired, if a schedule did.
        self.due_at = ordered.due_at
        # Why this work exists.
        self.cause = ordered.cause
        self._cancelled = False
        self._activator = activator
        self._reporter = reporter

    @cached_property
    def log(self) -> RunLog:
        """The log of the run."""
        return RunLog(self.job, self._reporter)

    @property
    def cancelled(self) -> bool:
        """Whether the run should end early. Long plain functions should check it."""
        return self._cancelled

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Report progress in percent and in words; an omitted value keeps its last one.

        Call it as often as you like: the latest is published a few times a second.
        """
        if self._reporter is not None:
            self._reporter.progress(percent, message)

    def activate(
        self,
        manifest: str,
        input: Any = None,  # noqa: A002 - what a job takes is called its input
        key: str | None = None,
    ) -> Awaitable[None]:
        """Activate a dormant dependent of this run's manifest, with an input.

            await ctx.activate("mail-report", Report(day=today))     # in an async body
            ctx.activate("mail-report", Report(day=today))           # in a plain function

        It is valid as soon as this returns, even if the run fails later. `key` distinguishes
        several activations of one dependent. The default is their number in this run, so that a
        retry that does the same activates nothing twice.
        """
        return self._activate([ActivationRequest(manifest, input, key)])

    def activate_many(self, activations: Iterable[tuple[str, Any]]) -> Awaitable[None]:
        """Activate several dependents, each given as (manifest, input): all or none."""
        requests = [ActivationRequest(manifest, given) for manifest, given in activations]
        return self._activate(requests)

    def _activate(self, requests: list[ActivationRequest]) -> Awaitable[None]:
        if self._activator is None:
            raise ActivationUnavailable("this context has no worker, so it cannot activate")
        return self._activator.activate(requests)

    def ask_to_stop(self) -> None:
        """Note that the run should end early."""
        self._cancelled = True
