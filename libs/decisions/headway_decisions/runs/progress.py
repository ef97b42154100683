"""Decide which progress and log lines of runs are kept.

They are published without a fence: they may be lost, duplicated, late, forged or too many. The
token keeps strangers out, the numbers make order and duplicates harmless, and the limits apply to
every worker.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.worker_protocol import (
    FIELDS_LIMIT,
    LEVELS,
    LINE_LIMIT,
    LINES_LIMIT,
    LOG_BYTES_LIMIT,
    PROGRESS_LIMIT,
    LogLine,
    Progress,
)
from msgspec import Struct

# The last report of a run may arrive after its outcome.
LATE = timedelta(minutes=1)

Refusal = Literal["unknown_run", "wrong_token", "not_the_claimant", "too_late"]


class News(Struct, frozen=True, kw_only=True):
    """A report, with the worker and the lease of its subject."""

    worker: str
    lease: UUID
    progress: Progress


class Teller(Struct, frozen=True, kw_only=True):
    """A known run, with the bytes of its log."""

    run: UUID
    lease: UUID
    token: str
    claimed_by: str | None = None
    ended_at: datetime | None = None
    log_bytes: int = 0


class Kept(Struct, frozen=True, kw_only=True):
    """The progress and log lines to store for a run."""

    run: UUID
    number: int
    at: datetime
    percent: float | None
    message: str | None
    lines: tuple[LogLine, ...]
    dropped: int


def refusal(teller: Teller | None, news: News, *, now: datetime) -> Refusal | None:
    """Return why a report is not kept, or `None`."""
    if teller is None or teller.lease != news.lease or news.progress.lease != news.lease:
        return "unknown_run"
    if teller.token != news.progress.token:
        return "wrong_token"
    if teller.claimed_by not in (None, news.worker):
        return "not_the_claimant"
    if teller.ended_at is not None and teller.ended_at < now - LATE:
        return "too_late"
    return None


def digest(teller: Teller, reports: Iterable[Progress]) -> Kept:
    """Combine the accepted reports of a run: the latest progress, and the lines that fit."""
    reports = sorted(reports, key=lambda report: report.number)
    latest = reports[-1]
    lines = {line.number: _cut(line) for report in reports for line in report.lines}
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
        message=None if latest.message is None else latest.message[:PROGRESS_LIMIT],
        lines=tuple(kept),
        dropped=max(*(report.dropped for report in reports), len(lines) - len(kept)),
    )


def size_of(line: LogLine) -> int:
    """Return the size of a line against the log limit."""
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
