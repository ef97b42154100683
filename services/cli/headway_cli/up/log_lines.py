"""The log of `up` as lines for people: entries of this process and of the app's worker.

Entries about the wiring of Headway are left out, because a user of `up` has no use for them.
"""

import json
import logging
from typing import Any

from headway_tracing.log import EXCEPTION, JsonFormatter, field_text
from rich.text import Text

from headway_cli.terminal.output import printable

_NOT_FIELDS = frozenset({"time", "level", "logger", "event", EXCEPTION, "trace_id", "span_id"})
_JOBS = "headway.job."
# Declarations change the user's manifests.
_DECLARED = "headway_scheduler.declare.startup"
_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
# The dispatcher logs the same failure, with what follows.
_BODY_FAILED = "headway.worker.lease_runner"
_TO_JSON = JsonFormatter()

Entry = dict[str, Any]


def entry_of_record(record: logging.LogRecord) -> Entry:
    """Return the entry of a record of this process."""
    entry: Entry = json.loads(_TO_JSON.format(record))
    return entry


def entry_of_line(line: str) -> Entry | None:
    """Return the entry that a worker wrote as a line; `None` for any other output."""
    if not line.startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    is_entry = isinstance(entry, dict) and {"time", "level", "logger", "event"} <= entry.keys()
    return entry if is_entry else None


def is_shown(entry: Entry) -> bool:
    """Return whether a user wants to see an entry, without --debug."""
    name, level = str(entry["logger"]), entry["level"]
    if name.startswith(_JOBS) or name == _DECLARED:
        return True
    if level in ("debug", "info"):
        return not name.startswith("headway")
    return name != _BODY_FAILED


def drawn(entry: Entry) -> Text:
    """Draw an entry: its time in UTC, level, source, event and fields, and a traceback."""
    level, style = str(entry["level"]), _STYLES.get(str(entry["level"]), "")
    fields = [field_text(key, value) for key, value in entry.items() if key not in _NOT_FIELDS]
    line = Text.assemble(
        (f"{str(entry['time'])[11:19]} ", "dim"),
        (f"{level.upper():<7} ", style or "dim"),
        (f"{_source(str(entry['logger']))}: ", "cyan"),
        (printable(str(entry["event"])), style),
        "".join(f" {field}" for field in fields),
    )
    for row in str(entry.get(EXCEPTION) or "").rstrip().splitlines():
        line.append(f"\n    {printable(row.expandtabs())}", style="red" if style else "")
    return line


def _source(logger: str) -> str:
    """Name a job, or a part of Headway."""
    if logger.startswith(_JOBS):
        return logger.removeprefix(_JOBS)
    top, *rest = logger.split(".")
    return top.removeprefix("headway_") if top != "headway" or not rest else rest[0]
