"""How far a run is, and what it logs: told on core NATS, unfenced, and allowed to be lost.

Nothing is decided by it. Messages of a run carry a running number and its lines another, so
that they may come late, doubled or in any order; the token of the order keeps strangers out.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct

# What one run may keep. A worker that drops lines beyond it says how many.
LINES_LIMIT = 1000
LOG_BYTES_LIMIT = 256 * 1024
LINE_LIMIT = 4 * 1024
FIELDS_LIMIT = 4 * 1024
MESSAGE_LIMIT = 1024

Moment = Annotated[datetime, Meta(tz=True)]

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error", "critical")


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of a run's log; `number` counts the lines of the run from 1."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    at: Moment
    level: str = "info"
    message: str = ""
    fields: dict[str, Any] = {}


class Progress(Struct, frozen=True, kw_only=True):
    """News of one run.

    `number` counts the messages of the run from 1: a percentage or a message of a lower number than
    one that is known already is out of date. `percent` and `message` are none while nothing was
    said of them. `dropped` are the lines that the run was not allowed to keep, up to now.
    """

    lease: UUID
    token: str
    run: UUID
    number: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    at: Moment
    percent: Annotated[float, Meta(ge=0, le=100)] | None = None
    message: str | None = None
    lines: list[LogLine] = []
    dropped: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
