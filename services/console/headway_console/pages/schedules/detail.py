"""One schedule: when it fires, what its times came to and why, how long it takes, what it is."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from headway_clock import utc_now
from headway_contract.scheduling import PreviewAnswer
from headway_errors import NotFound, RequestFailed, Unavailable
from litestar import Request, Response, get
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages.charts import durations
from headway_console.pages.control import client_of
from headway_console.pages.schedules import form as forms
from headway_console.pages.schedules import graph, month
from headway_console.pages.schedules.day import DayOf, read_day
from headway_console.pages.schedules.messages import called, told
from headway_console.pages.shell import show
from headway_console.pages.zones import zone_of
from headway_console.reading.calendar import Past, Stretch, read_past
from headway_console.reading.figures import FigureFilter, latest_figures
from headway_console.reading.manifests import ManifestInFull, read_manifest

_SHOWN_FIRES = 8
_SHOWN_RUNS = 300


@get("/schedules/{name:str}", opt=needs("viewer"))
async def schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[str]:
    """One schedule."""
    return await show_schedule(request, await find(request, name))


async def find(request: Request[Any, Any, Any], name: str) -> ManifestInFull:
    """The schedule of a name; raises `NotFound`."""
    async with request.app.state.database.acquire() as connection:
        found = await read_manifest(connection, name)
    if found is None:
        raise NotFound(f"there is no schedule {name!r}: it may have been deleted")
    return found


async def show_schedule(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    *,
    form: forms.Form | None = None,
    status: int = 200,
) -> Response[str]:
    """The page, with a form as it was filled in if something is wrong with it."""
    now, zone = utc_now(), ZoneInfo(found.status.zone)
    today = now.astimezone(zone).date()
    chosen = _date(request.query_params.get("day"))
    asked_month = request.query_params.get("month") or (f"{chosen:%Y-%m}" if chosen else None)
    first = month.first_of(asked_month, today=today)
    since, until = month.span(first, zone)
    async with request.app.state.database.acquire() as connection:
        past = await read_past(
            connection, found.status.id, since=since, until=until, zone=found.status.zone
        )
        figures = await latest_figures(
            connection, FigureFilter(manifest=found.status.id), limit=_SHOWN_RUNS
        )
    upcoming = await _preview(request, found, now, _SHOWN_FIRES)
    coming = upcoming
    if until > now:
        after = max(_undecided_since(found, now), since)
        coming = await _preview(request, found, after, month.MOST_COMING, each=True)
    day: DayOf | None = None
    if chosen:
        day = await read_day(request, found, chosen, zone, now=now)
    value = setting_of(found, "input")
    resuming = await _resuming(request, found)
    return show(
        request,
        "schedules/detail.html",
        status=status,
        found=found,
        schedule=found.status,
        today=today,
        month=month.grid(
            first,
            zone,
            _with_pause(past, found, now),
            coming.fires,
            today=today,
        ),
        past=past,
        day=day,
        upcoming=upcoming,
        resuming=resuming,
        plot=durations(figures, zone_of(request)),
        drawing=graph.draw(found.family, found.status.id),
        form=form or forms.made_of(found.input_schema, value, takes_input=found.takes_input),
        form_open=form is not None,
        retry=setting_of(found, "retry") or {},
        jitter=setting_of(found, "jitter_seconds") or 0,
        called=called,
        told=told,
    )


def setting_of(found: ManifestInFull, name: str) -> Any:
    """What a setting is set to."""
    return next((one.value for one in found.settings if one.name == name), None)


async def _preview(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    after: datetime,
    count: int,
    *,
    each: bool = False,
) -> PreviewAnswer:
    """The fires to come; a page without them is better than none."""
    name = found.status.external_id
    try:
        return await client_of(request).preview(name, count, after=after, each=each)
    except Unavailable:
        note = "the scheduler does not answer, so nobody can say when it fires"
        return PreviewAnswer(manifest=name, zone=found.status.zone, note=note)


async def _resuming(request: Request[Any, Any, Any], found: ManifestInFull) -> str:
    """What ending its pause would make good, before somebody ends it."""
    if found.status.held_by != "paused":
        return ""
    try:
        answer = await client_of(request).resume(found.status.external_id, dry_run=True)
    except RequestFailed as error:
        return str(error)
    return "; ".join([answer.text, *(one.text for one in answer.manifests)])


def _undecided_since(found: ManifestInFull, now: datetime) -> datetime:
    """Excluded times are written down with the next that is allowed; until then they are shown."""
    due_at = found.status.next_due_at
    if due_at is None or due_at > now or found.status.held_by is not None:
        return now
    return due_at - timedelta(microseconds=1)


def _with_pause(past: Past, found: ManifestInFull, now: datetime) -> Past:
    """What is being skipped right now is written down only when that ends; show it already."""
    due_at, held_by = found.status.next_due_at, found.status.held_by
    if held_by is None or due_at is None or due_at > now:
        return past
    pause = Stretch(first_due_at=due_at, last_due_at=now, state="skipped", reason=held_by)
    return Past(days=past.days, stretches=[*past.stretches, pause], in_full=past.in_full)


def _date(text: str | None) -> date | None:
    try:
        found = datetime.strptime(text or "", "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None
    return found if timedelta(0) < found - date(2000, 1, 1) < timedelta(days=200 * 365) else None
