"""Structured log entries: a stable event phrase plus fields.

    log = get_logger(__name__)
    log.warning("consumer reset failed", job=job, error=error)

The phrase never contains values, so that it can be searched and alerted on. At a terminal an
entry is one line, `consumer reset failed job=mail error="timed out"`; elsewhere it is one JSON
object with the ids of the current trace. A field `exception` is a traceback as text, which follows
on lines of its own, as for the current exception.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from opentelemetry import trace

TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"  # one line, for a terminal

EXCEPTION = "exception"

_NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


class Entry(NamedTuple):
    """The message of a log record: an event phrase and its fields."""

    event: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        fields = [field_text(*item) for item in self.fields.items() if item[0] != EXCEPTION]
        line = " ".join([self.event, *fields])
        stack = str(self.fields.get(EXCEPTION) or "").rstrip()
        return f"{line}\n{stack}" if stack else line


class Log:
    """A logger whose entries are an event phrase plus fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        """Log at level DEBUG."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """Log at level INFO."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """Log at level WARNING."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """Log at level ERROR."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log at level ERROR, with the traceback of the current exception."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def _write(
        self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Entry(event, fields), exc_info=exc_info, stacklevel=3)


def get_logger(name: str) -> Log:
    """Return the structured logger of a module."""
    return Log(name)


class JsonFormatter(logging.Formatter):
    """Formats an entry as one JSON object, with the ids of the current trace."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record of Headway or of any other library."""
        message: Any = record.msg
        entry = message if isinstance(message, Entry) else Entry(record.getMessage(), _NO_FIELDS)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": entry.event,
        }
        current = trace.get_current_span().get_span_context()
        if current.is_valid:
            line["trace_id"] = trace.format_trace_id(current.trace_id)
            line["span_id"] = trace.format_span_id(current.span_id)
        for key, value in entry.fields.items():
            line[f"{key}_" if key in line else key] = value
        if record.exc_info:
            line[EXCEPTION] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def field_text(key: str, value: object) -> str:
    """Write a field; quote a value that has spaces, quotes, `=` or unprintable characters."""
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in ' "=')
    return f"{key}={text if plain else json.dumps(text, ensure_ascii=False)}"
