"""One day of a manifest: every fire and skip, explained if it did not simply complete."""

import asyncio
import contextlib
import functools
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from headway_contract import manifests as contract
from headway_contract import subjects
from headway_decisions.firing import identity
from headway_errors import Unavailable
from msgspec import Struct, structs

from headway_console.pages import form_fields as fields
from headway_console.pages.filters import cause
from headway_console.pages.manifests import heat
from headway_console.pages.manifests.heat import Row
from headway_console.pages.manifests.month import MAX_COMING, start_of_day
from headway_console.reading.lists import read_row
from headway_console.reading.manifests import ManifestDetails
from headway_console.reading.occurrences import Occurrence, read_buckets, read_span
from headway_console.services import HttpRequest, ask, read

# A day with at most so many fires is listed, any other is a map of hours.
_SPARSE = 48
_SHOWN = 200
_DIGITS = 4
_MAX_EXPLAINED = 12
_INSTANT = timedelta(microseconds=1)
_SCHEDULED = ("due", "stretch")


class Line(Struct, frozen=True, kw_only=True):
    """A fire, a skip, or a future time; `why` is the explanation."""

    at: datetime
    local: str
    state: str
    reason: str
    by: str = ""
    work: UUID | None = None
    run: UUID | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    why: str = ""
    is_scheduled: bool = True


class DayDetails(Struct, frozen=True, kw_only=True):
    """A day; with many fires it has a map, and lists five minutes that are chosen there.

    A day or an hour with many fires lists only those without a success (`troubled`). `explained` is
    a time to explain, and `answer` its explanation.
    """

    day: date
    part: str
    troubled: bool
    hours: list[Row]
    lines: list[Line]
    more: bool
    in_full: bool
    explained: str = ""
    answer: str = ""


async def read_day(
    request: HttpRequest, found: ManifestDetails, day: date, zone: ZoneInfo, *, now: datetime
) -> DayDetails:
    """Read the past and future entries of a day, with explanations."""
    since, until = start_of_day(day, zone), start_of_day(day + timedelta(days=1), zone)
    part = _part_of(request, since, until)
    name, explained, answer = found.status.external_id, fields.text_of(request, "at") or "", ""
    fires: list[contract.FireTime] = []
    try:
        fires = await _undecided(request, found, since, until)
        answer = await _explain_time(request, name, explained, day, zone)
    except Unavailable as error:
        explained, answer = "", str(error)
    counted = await read(
        request, read_buckets, found.status.id, since=since, until=until, width=heat.WIDTH
    )
    is_dense = counted.fires + len(fires) > _SPARSE
    begin, end = part or (since, until)
    troubled = is_dense and end - begin > heat.WIDTH
    lines, more = await _lines(request, found, (begin, end), fires, now=now, troubled=troubled)
    hours = heat.lay_out(
        *(since, until, zone),
        counts=counted.counts,
        stretches=counted.stretches,
        fires=fires,
        now=now,
        chosen=part,
    )
    return DayDetails(
        day=day,
        part=" to ".join(f"{at.astimezone(zone):%H:%M}" for at in part or ()),
        troubled=troubled,
        hours=hours if is_dense else [],
        lines=lines,
        more=more,
        in_full=counted.in_full,
        explained=explained,
        answer=answer,
    )


def _part_of(
    request: HttpRequest, since: datetime, until: datetime
) -> tuple[datetime, datetime] | None:
    """Return the part of the day in the URL: its first minute, and an hour or a cell of the map."""
    text = fields.text_of(request, "minute") or ""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    begin = since + timedelta(minutes=int(text))
    width = heat.HOUR if fields.text_of(request, "whole") else heat.WIDTH
    return (begin, begin + width) if begin < until else None


async def _lines(
    request: HttpRequest,
    found: ManifestDetails,
    span: tuple[datetime, datetime],
    fires: Sequence[contract.FireTime],
    *,
    now: datetime,
    troubled: bool,
) -> tuple[list[Line], bool]:
    """Return the entries of a span with explanations, and whether there are more."""
    (since, until), zone = span, ZoneInfo(found.status.zone)
    read_entries = functools.partial(read_span, since=since, until=until, limit=_SHOWN)
    past, more = await read(request, read_entries, found.status.id, troubled=troubled)
    lines = [_line(occurrence, zone) for occurrence in past]
    lines += [
        _undecided_line(fire, found, zone, now)
        for fire in fires
        if since <= fire.due_at < until and not (troubled and fire.due_at > now)
    ]
    more, lines = more or len(lines) > _SHOWN, lines[:_SHOWN]
    with contextlib.suppress(Unavailable):
        lines = await _explained(request, found.status.external_id, lines)
    return lines, more


async def _undecided(
    request: HttpRequest, found: ManifestDetails, since: datetime, until: datetime
) -> list[contract.FireTime]:
    """Return undecided times of the day: future ones, or those in a pause."""
    status = found.status
    if status.next_due_at is None or status.next_due_at >= until:
        return []
    after = max(since, status.next_due_at) - _INSTANT
    answer = await preview(request, status.external_id, after=after, count=MAX_COMING, each=True)
    return [fire for fire in answer.fires if fire.due_at < until]


async def _explained(request: HttpRequest, name: str, lines: list[Line]) -> list[Line]:
    """Add explanations to lines that did not simply complete."""
    wanted = [
        index
        for index, line in enumerate(lines)
        if line.is_scheduled and line.state not in ("completed", "to_come")
    ][:_MAX_EXPLAINED]
    texts = await asyncio.gather(*(explain(request, name, lines[index].at) for index in wanted))
    explained = list(lines)
    for index, text in zip(wanted, texts, strict=True):
        explained[index] = structs.replace(lines[index], why=text)
    return explained


async def _explain_time(
    request: HttpRequest, name: str, text: str, day: date, zone: ZoneInfo
) -> str:
    """Explain a time of the form, in the zone of the manifest."""
    if not text:
        return ""
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return f"Invalid time {text!r}: write 02:30"
    at = datetime.combine(day, clock, tzinfo=zone).astimezone(UTC)
    return await explain(request, name, at)


async def explain(request: HttpRequest, name: str, at: datetime | None = None) -> str:
    """Ask the scheduler why a manifest ran or did not run, at a time or now."""
    question = contract.ExplainQuestion(manifest=name, at=at)
    return (await ask(request, subjects.EXPLAIN_QUESTION, question, contract.ExplainAnswer)).text


async def preview(
    request: HttpRequest, name: str, *, after: datetime, count: int, each: bool
) -> contract.PreviewAnswer:
    """Ask the scheduler for the next fire times of a manifest."""
    question = contract.PreviewQuestion(manifest=name, count=count, after=after, each=each)
    subject = subjects.PREVIEW_QUESTION
    return await ask(request, subject, question, contract.PreviewAnswer, slow=True)


def _undecided_line(
    fire: contract.FireTime, found: ManifestDetails, zone: ZoneInfo, now: datetime
) -> Line:
    held_by = found.status.held_by or ""
    return Line(
        at=fire.due_at,
        local=_local(fire.due_at, fire.due_at, zone),
        state="to_come" if fire.due_at > now else "not_fired",
        reason=f"excluded: {fire.excluded}" if fire.excluded else held_by,
    )


def _line(occurrence: Occurrence, zone: ZoneInfo) -> Line:
    is_scheduled = identity.kind_of(occurrence.cause) in _SCHEDULED
    by = "" if is_scheduled else cause(occurrence.cause)
    return read_row(
        Line,
        structs.asdict(occurrence),
        at=occurrence.first_due_at,
        local=_local(occurrence.first_due_at, occurrence.last_due_at, zone),
        reason=occurrence.reason or "",
        by=f"{by} by {occurrence.actor}" if by and occurrence.actor else by,
        is_scheduled=is_scheduled,
    )


def _local(first: datetime, last: datetime, zone: ZoneInfo) -> str:
    begins, ends = first.astimezone(zone), last.astimezone(zone)
    if begins == ends:
        return f"{begins:%H:%M:%S}"
    if begins.date() == ends.date():
        clock = "%H:%M" if ends - begins > timedelta(hours=1) else "%H:%M:%S"
        return f"{begins:{clock}} to {ends:{clock}}"
    return f"{begins:%d %b %H:%M} to {ends:%d %b %H:%M}"
