"""One day of a schedule: every fire and every skip of it, each with its reason in words.

The words are the scheduler's: it is asked to explain, the strangest first, and not more often than
somebody reads.
"""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from headway import Client
from headway_contract.scheduling import FireTime
from headway_decisions.firing import identity
from headway_errors import Unavailable
from litestar import Request
from msgspec import Struct, structs

from headway_console.pages.control import client_of
from headway_console.pages.schedules.month import instant
from headway_console.reading.manifests import ManifestInFull
from headway_console.reading.occurrences import Occurrence, read_span

_MOST_LINES = 200
_MOST_EXPLAINED = 12
_INSTANT = timedelta(microseconds=1)
_SCHEDULED = ("due", "stretch")
_ASKED_BY = {
    "trigger": "run now",
    "backfill": "backfilled",
    "activation": "woken by a run",
    "success": "after its parent",
    "successes": "after its parent",
    "replay": "retried",
}


class Line(Struct, frozen=True, kw_only=True):
    """A fire, a skip, or a time to come. `why` is what the scheduler says of it."""

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
    """The day. `asked` is the time that somebody wants explained, with the answer in `answer`."""

    day: date
    lines: list[Line]
    more: bool
    asked: str
    answer: str


async def read_day(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    day: date,
    zone: ZoneInfo,
    *,
    now: datetime,
) -> DayOf:
    """What a day came to, what it will bring, and why."""
    since, until = instant(day, zone), instant(day + timedelta(days=1), zone)
    async with request.app.state.database.acquire() as connection:
        past = await read_span(
            connection, found.status.id, since=since, until=until, limit=_MOST_LINES
        )
    client, name = client_of(request), found.status.external_id
    lines = [_line(one, zone) for one in past.occurrences]
    try:
        lines += await _undecided(client, found, since, until, now=now)
        lines = await _explained(client, name, lines)
        asked, answer = await _asked(client, name, request.query_params.get("at"), day, zone)
    except Unavailable as error:
        asked, answer = "", str(error)
    return DayOf(day=day, lines=lines, more=past.more, asked=asked, answer=answer)


async def _undecided(
    client: Client, found: ManifestInFull, since: datetime, until: datetime, *, now: datetime
) -> list[Line]:
    """Times of the day that nobody has decided yet: to come, or passing in a pause."""
    due_at = found.status.next_due_at
    if due_at is None or due_at >= until:
        return []
    after = max(since, due_at) - _INSTANT
    answer = await client.preview(found.status.external_id, _MOST_LINES, after=after, each=True)
    zone = ZoneInfo(found.status.zone)
    return [
        _to_come(fire, found.status.held_by, zone, now=now)
        for fire in answer.fires
        if fire.due_at < until
    ]


async def _explained(client: Client, name: str, lines: list[Line]) -> list[Line]:
    """The lines, those that did not simply run with the scheduler's words."""
    wanted = [
        index
        for index, line in enumerate(lines)
        if line.is_scheduled and line.state not in ("completed", "to_come")
    ][:_MOST_EXPLAINED]
    answers = await asyncio.gather(*(client.explain(name, at=lines[index].at) for index in wanted))
    words = dict(zip(wanted, (answer.text for answer in answers), strict=True))
    return [structs.replace(line, why=words.get(index, "")) for index, line in enumerate(lines)]


async def _asked(
    client: Client, name: str, given: str | None, day: date, zone: ZoneInfo
) -> tuple[str, str]:
    """The time that somebody asks about, on the clock of the schedule, and the answer."""
    text = (given or "").strip()
    if not text:
        return "", ""
    for form in ("%H:%M", "%H:%M:%S"):
        try:
            clock = datetime.strptime(text, form).time()  # noqa: DTZ007
        except ValueError:
            continue
        at = datetime.combine(day, clock, tzinfo=zone).astimezone(UTC)
        return text, (await client.explain(name, at=at)).text
    return text, f"{text!r} is no time: write it like 02:30"


def _line(one: Occurrence, zone: ZoneInfo) -> Line:
    kind = identity.kind_of(one.cause)
    by = _ASKED_BY.get(kind, "" if kind in _SCHEDULED else kind)
    return Line(
        at=one.first_due_at,
        until=one.last_due_at,
        local=_local(one.first_due_at, one.last_due_at, zone),
        state=one.state,
        reason=one.reason or "",
        by=f"{by} by {one.actor}" if by and one.actor else by,
        work=one.work,
        run=one.run,
        started_at=one.started_at,
        finished_at=one.finished_at,
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
