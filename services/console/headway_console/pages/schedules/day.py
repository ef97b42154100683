"""One day of a manifest: every fire and skip with its explanation.

The scheduler explains the entries that did not simply complete, up to a limit.
"""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from headway.client.control import PATIENT_SECONDS
from headway_contract import subjects
from headway_contract.manifests import (
    ExplainAnswer,
    ExplainQuestion,
    FireTime,
    PreviewAnswer,
    PreviewQuestion,
)
from headway_decisions.firing import identity
from headway_errors import Unavailable
from litestar import Request
from msgspec import Struct, structs

from headway_console.pages.schedules.month import instant
from headway_console.reading.manifests import ManifestInFull
from headway_console.reading.occurrences import Occurrence, read_span
from headway_console.services import ask

_MAX_LINES = 200
_MAX_EXPLAINED = 12
_INSTANT = timedelta(microseconds=1)
_SCHEDULED = ("due", "stretch")
_CAUSES = {
    "trigger": "triggered",
    "backfill": "backfilled",
    "activation": "activated by a run",
    "success": "after its parent",
    "successes": "after its parent",
    "replay": "retried",
}


class Line(Struct, frozen=True, kw_only=True):
    """A fire, a skip, or a future time; `why` is the explanation."""

    at: datetime
    until: datetime
    local: str
    state: str
    reason: str
    by: str
    work: UUID | None = None
    run: UUID | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    why: str = ""
    is_scheduled: bool = True


class DayOf(Struct, frozen=True, kw_only=True):
    """A day; `explained` is a time to explain, and `answer` its explanation."""

    day: date
    lines: list[Line]
    more: bool
    explained: str
    answer: str


async def read_day(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    day: date,
    zone: ZoneInfo,
    *,
    now: datetime,
) -> DayOf:
    """Read the past and future entries of a day, with explanations."""
    since, until = instant(day, zone), instant(day + timedelta(days=1), zone)
    async with request.app.state.database.acquire() as connection:
        past = await read_span(
            connection, found.status.id, since=since, until=until, limit=_MAX_LINES
        )
    name = found.status.external_id
    lines = [_line(occurrence, zone) for occurrence in past.occurrences]
    try:
        lines += await _undecided(request, found, since, until, now=now)
        lines = await _explained(request, name, lines)
        explained, answer = await _explain_time(
            request, name, request.query_params.get("at"), day, zone
        )
    except Unavailable as error:
        explained, answer = "", str(error)
    return DayOf(day=day, lines=lines, more=past.more, explained=explained, answer=answer)


async def _undecided(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    since: datetime,
    until: datetime,
    *,
    now: datetime,
) -> list[Line]:
    """Return undecided times of the day: future ones, or those in a pause."""
    due_at = found.status.next_due_at
    if due_at is None or due_at >= until:
        return []
    after = max(since, due_at) - _INSTANT
    question = PreviewQuestion(
        manifest=found.status.external_id, count=_MAX_LINES, after=after, each=True
    )
    answer = await preview(request, question)
    zone = ZoneInfo(found.status.zone)
    return [
        _to_come(fire, found.status.held_by, zone, now=now)
        for fire in answer.fires
        if fire.due_at < until
    ]


async def _explained(request: Request[Any, Any, Any], name: str, lines: list[Line]) -> list[Line]:
    """Add explanations to lines that did not simply complete."""
    wanted = [
        index
        for index, line in enumerate(lines)
        if line.is_scheduled and line.state not in ("completed", "to_come")
    ][:_MAX_EXPLAINED]
    answers = await asyncio.gather(*(_explain(request, name, lines[index].at) for index in wanted))
    words = dict(zip(wanted, (answer.text for answer in answers), strict=True))
    return [structs.replace(line, why=words.get(index, "")) for index, line in enumerate(lines)]


async def _explain_time(
    request: Request[Any, Any, Any], name: str, given: str | None, day: date, zone: ZoneInfo
) -> tuple[str, str]:
    """Explain a time of the form, in the zone of the manifest."""
    text = (given or "").strip()
    if not text:
        return "", ""
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form).time()  # noqa: DTZ007
        except ValueError:
            continue
        at = datetime.combine(day, clock, tzinfo=zone).astimezone(UTC)
        return text, (await _explain(request, name, at)).text
    return text, f"Invalid time {text!r}: write 02:30"


async def preview(request: Request[Any, Any, Any], question: PreviewQuestion) -> PreviewAnswer:
    """Ask the scheduler for the next fire times."""
    return await ask(
        request, subjects.PREVIEW_QUESTION, question, PreviewAnswer, timeout=PATIENT_SECONDS
    )


async def _explain(request: Request[Any, Any, Any], name: str, at: datetime) -> ExplainAnswer:
    question = ExplainQuestion(manifest=name, at=at)
    return await ask(request, subjects.EXPLAIN_QUESTION, question, ExplainAnswer)


def _line(occurrence: Occurrence, zone: ZoneInfo) -> Line:
    kind = identity.kind_of(occurrence.cause)
    by = _CAUSES.get(kind, "" if kind in _SCHEDULED else kind)
    return Line(
        at=occurrence.first_due_at,
        until=occurrence.last_due_at,
        local=_local(occurrence.first_due_at, occurrence.last_due_at, zone),
        state=occurrence.state,
        reason=occurrence.reason or "",
        by=f"{by} by {occurrence.actor}" if by and occurrence.actor else by,
        work=occurrence.work,
        run=occurrence.run,
        started_at=occurrence.started_at,
        finished_at=occurrence.finished_at,
        is_scheduled=kind in _SCHEDULED,
    )


def _to_come(fire: FireTime, held_by: str | None, zone: ZoneInfo, *, now: datetime) -> Line:
    state = "to_come" if fire.due_at > now else "not_fired"
    reason = f"excluded: {fire.excluded}" if fire.excluded else held_by or ""
    return Line(
        at=fire.due_at,
        until=fire.due_at,
        local=_local(fire.due_at, fire.due_at, zone),
        state=state,
        reason=reason,
        by="",
    )


def _local(first: datetime, last: datetime, zone: ZoneInfo) -> str:
    begins, ends = first.astimezone(zone), last.astimezone(zone)
    if begins == ends:
        return f"{begins:%H:%M:%S}"
    if begins.date() == ends.date():
        clock = "%H:%M" if ends - begins > timedelta(hours=1) else "%H:%M:%S"
        return f"{begins:{clock}} to {ends:{clock}}"
    return f"{begins:%d %b %H:%M} to {ends:%d %b %H:%M}"
