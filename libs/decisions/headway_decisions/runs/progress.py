"""What is kept of the news that runs tell while they run.

News is unfenced: it may be lost, doubled, late, forged or too much. The token keeps strangers
out, the numbers make order and doubles harmless, and the limits hold for every worker.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.progress import (
    FIELDS_LIMIT,
    LEVELS,
    LINE_LIMIT,
    LINES_LIMIT,
    LOG_BYTES_LIMIT,
    MESSAGE_LIMIT,
    LogLine,
    Progress,
)
from msgspec import Struct

# The last words of a run travel beside its outcome, and may come behind it.
LATE = timedelta(minutes=1)

Refusal = Literal["unknown_run", "wrong_token", "not_the_claimant", "too_late"]


class News(Struct, frozen=True, kw_only=True):
    """What one worker told, and of which lease its subject said that it is."""

    worker: str
    lease: UUID
    progress: Progress


class Teller(Struct, frozen=True, kw_only=True):
    """A run as it is known, with what its log has used up."""

    run: UUID
    lease: UUID
    token: str
    claimed_by: str | None = None
    ended_at: datetime | None = None
    log_bytes: int = 0


class Kept(Struct, frozen=True, kw_only=True):
    """What is to be written of one run."""

    run: UUID
    number: int
    at: datetime
    percent: float | None
    message: str | None
    lines: tuple[LogLine, ...]
    dropped: int


def refusal(teller: Teller | None, news: News, *, now: datetime) -> Refusal | None:
    """Why news is not kept, or none."""
    if teller is None or teller.lease != news.lease or news.progress.lease != news.lease:
        return "unknown_run"
    if teller.token != news.progress.token:
        return "wrong_token"
    if teller.claimed_by not in (None, news.worker):
        return "not_the_claimant"
    if teller.ended_at is not None and teller.ended_at < now - LATE:
        return "too_late"
    return None


def digest(teller: Teller, told: Iterable[Progress]) -> Kept:
    """All accepted news of one run as one: the latest word, and the lines that fit."""
    told = sorted(told, key=lambda one: one.number)
    latest = told[-1]
    lines = {line.number: _cut(line) for one in told for line in one.lines}
    room = LOG_BYTES_LIMIT - teller.log_bytes
    kept = []
    for number in sorted(lines):
        size = size_of(lines[number])
        if number <= LINES_LIMIT and size <= room:
            kept.append(lines[number])
            room -= size
    return Kept(
        run=teller.run,
        number=latest.number,
        at=latest.at,
        percent=latest.percent,
        message=None if latest.message is None else latest.message[:MESSAGE_LIMIT],
        lines=tuple(kept),
        dropped=max(*(one.dropped for one in told), len(lines) - len(kept)),
    )


def size_of(line: LogLine) -> int:
    """What a line takes of the run's room."""
    return len(line.message.encode()) + len(msgspec.json.encode(line.fields))


def _cut(line: LogLine) -> LogLine:
    return LogLine(
        number=line.number,
        at=line.at,
        level=line.level if line.level in LEVELS else "info",
        message=line.message[:LINE_LIMIT],
        fields=_fields(line.fields),
    )


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    encoded = msgspec.json.encode(fields)
    if len(encoded) > FIELDS_LIMIT:
        return {"fields_left_out": f"{len(encoded)} bytes are more than {FIELDS_LIMIT}"}
    return fields
