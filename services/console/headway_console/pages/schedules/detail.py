"""One manifest: calendar, next fires, durations, dependencies and settings."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.manifests import PreviewAnswer, PreviewQuestion, ResumeAnswer, ResumeRequest
from headway_errors import NotFound, RequestFailed, Unavailable
from litestar import Request, Response, get
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages.charts import durations
from headway_console.pages.form_fields import zone_of
from headway_console.pages.schedules import form as forms
from headway_console.pages.schedules import graph, month
from headway_console.pages.schedules.day import DayOf, preview, read_day
from headway_console.pages.schedules.messages import setting_label, setting_text
from headway_console.pages.shell import show
from headway_console.reading.calendar import Past, Stretch, read_past
from headway_console.reading.figures import latest_figures
from headway_console.reading.manifests import ManifestInFull, read_manifest
from headway_console.services import ask

_SHOWN_FIRES = 8
_SHOWN_RUNS = 300


@get("/schedules/{name:str}", opt=needs("viewer"))
async def schedule(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[str]:
    """Show one manifest."""
    return await show_schedule(request, await find(request, name))


async def find(request: Request[Any, Any, Any], name: str) -> ManifestInFull:
    """Return a manifest; raises `NotFound`."""
    async with request.app.state.database.acquire() as connection:
        found = await read_manifest(connection, name)
    if found is None:
        raise NotFound(f"there is no manifest {name!r}: it may have been deleted")
    return found


async def show_schedule(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    *,
    form: forms.Form | None = None,
    status: int = 200,
) -> Response[str]:
    """Render the page, with a filled form if its input is invalid."""
    now, zone = utc_now(), ZoneInfo(found.status.zone)
    today = now.astimezone(zone).date()
    chosen = _date(request.query_params.get("day"))
    month_text = request.query_params.get("month") or (f"{chosen:%Y-%m}" if chosen else None)
    first = month.first_of(month_text, today=today)
    since, until = month.span(first, zone)
    async with request.app.state.database.acquire() as connection:
        past = await read_past(
            connection, found.status.id, since=since, until=until, zone=found.status.zone
        )
        figures = await latest_figures(connection, found.status.id, limit=_SHOWN_RUNS)
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
        manifest=found.status,
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
        setting_label=setting_label,
        setting_text=setting_text,
    )


def setting_of(found: ManifestInFull, name: str) -> Any:
    """Return the value of a setting."""
    return next((setting.value for setting in found.settings if setting.name == name), None)


async def _preview(
    request: Request[Any, Any, Any],
    found: ManifestInFull,
    after: datetime,
    count: int,
    *,
    each: bool = False,
) -> PreviewAnswer:
    """Return the next fires; none if the scheduler does not answer."""
    name = found.status.external_id
    try:
        return await preview(
            request, PreviewQuestion(manifest=name, count=count, after=after, each=each)
        )
    except Unavailable:
        note = "the scheduler does not answer, so the next fires are unknown"
        return PreviewAnswer(manifest=name, zone=found.status.zone, note=note)


async def _resuming(request: Request[Any, Any, Any], found: ManifestInFull) -> str:
    """Describe the effect of a resume."""
    if found.status.held_by != "paused":
        return ""
    try:
        wish = ResumeRequest(manifests=[found.status.external_id], dry_run=True)
        answer = await ask(request, subjects.RESUME_REQUEST, wish, ResumeAnswer)
    except RequestFailed as error:
        return str(error)
    return "; ".join([answer.text, *(manifest.text for manifest in answer.manifests)])


def _undecided_since(found: ManifestInFull, now: datetime) -> datetime:
    """Include excluded times, which are recorded with the next allowed fire."""
    due_at = found.status.next_due_at
    if due_at is None or due_at > now or found.status.held_by is not None:
        return now
    return due_at - timedelta(microseconds=1)


def _with_pause(past: Past, found: ManifestInFull, now: datetime) -> Past:
    """Add the current pause, which is recorded when it ends."""
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
