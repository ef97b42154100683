"""The list of manifests, and one with calendar, next fires, durations, graph and settings."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, get_args
from zoneinfo import ZoneInfo

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.manifests import PreviewAnswer, ResumeAnswer, ResumeRequest
from headway_errors import RequestFailed, Unavailable
from litestar import Response, get
from litestar.params import FromPath
from msgspec import structs

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import pretty
from headway_console.pages.manifests import durations, graph, month
from headway_console.pages.manifests.day import explain, preview, read_day
from headway_console.pages.shell import show, show_list
from headway_console.reading import manifests
from headway_console.reading.groups import page_of_groups
from headway_console.reading.manifests import ManifestDetails, ManifestFilter, ManifestState
from headway_console.reading.occurrences import Past, Stretch, latest_figures, read_past
from headway_console.reading.runs import RunFilter, page_of_runs, read_run
from headway_console.services import HttpRequest, ask, read

_MAX_GROUPS = 200
_SHOWN_FIRES = 8
_SHOWN_RUNS = 10
_MEASURED_RUNS = 300


@get("/manifests", opt=needs("viewer"))
async def manifest_list(request: HttpRequest) -> Response[str]:
    """List manifests by text, group, label and state."""
    label = fields.text_of(request, "label") or ""
    labels = (label,) if "=" in label else ()
    filters = fields.read_filters(request, ManifestFilter, label=labels)
    groups = await read(request, page_of_groups, limit=_MAX_GROUPS)
    return await show_list(
        request,
        "manifests/list.html",
        manifests.page_of_manifests,
        filters=filters,
        groups=[group.name for group in groups.items],
        labels=[
            (f"{key}={value}", f"{key}: {value} ({count})")
            for key, value, count in await read(request, manifests.list_labels)
        ],
        states=get_args(ManifestState),
    )


@get("/manifests/{name:str}", opt=needs("viewer"))
async def manifest_page(request: HttpRequest, name: FromPath[str]) -> Response[str]:
    """Show one manifest, with the input of the run `again` to edit, if one is named."""
    found, given = await read(request, manifests.read_manifest, name), ""
    if again := fields.text_of(request, "again"):
        given = pretty((await read(request, read_run, fields.id_of(again, "again"))).input)
    return await show_manifest(request, found, given=given)


async def show_manifest(
    request: HttpRequest, found: ManifestDetails, *, given: str = "", problem: str = ""
) -> Response[str]:
    """Render the page, with the text of a refused input and its problem."""
    manifest = found.status
    now, zone = utc_now(), ZoneInfo(manifest.zone)
    today = now.astimezone(zone).date()
    chosen = month.parse_day(fields.text_of(request, "day"), "%Y-%m-%d")
    month_text = fields.text_of(request, "month") or (f"{chosen:%Y-%m}" if chosen else None)
    first = month.first_of(month_text, today=today)
    since, until = month.span(first, zone)
    past = await read(request, read_past, manifest.id, since=since, until=until, zone=manifest.zone)
    figures = await read(request, latest_figures, manifest.id, limit=_MEASURED_RUNS)
    latest = RunFilter(manifest_id=manifest.id)
    counted = month.MAX_COMING if until > now else 1
    after = max(_undecided_since(found, now), since)
    # At once, so that a scheduler that is slow or gone costs its timeout only once.
    upcoming, coming, resuming, explanation = await asyncio.gather(
        _preview(request, found, now, _SHOWN_FIRES),
        _preview(request, found, after, counted, each=True),
        _resuming(request, found),
        _explanation(request, manifest.external_id),
    )
    return show(
        request,
        "manifests/detail.html",
        status=422 if problem else 200,
        own_zone=manifest.zone,
        found=found,
        manifest=manifest,
        month=month.grid(first, zone, _with_pause(past, found, now), coming.fires, today=today),
        past=past,
        day=await read_day(request, found, chosen, zone, now=now) if chosen else None,
        upcoming=upcoming,
        resuming=resuming,
        explanation=explanation,
        latest=await read(request, page_of_runs, latest, limit=_SHOWN_RUNS),
        plot=durations.draw(figures, fields.zone_of(request)),
        drawing=graph.draw(found.family, manifest.id),
        most_drawn=manifests.FAMILY,
        given=given or pretty(setting_of(found, "input")),
        problem=problem,
        retry=setting_of(found, "retry") or {},
        jitter=setting_of(found, "jitter_seconds") or 0,
    )


def setting_of(found: ManifestDetails, name: str) -> Any:
    """Return the value of a setting."""
    return next((setting.value for setting in found.settings if setting.name == name), None)


async def _explanation(request: HttpRequest, name: str) -> str:
    """Explain the state of a manifest; empty if the scheduler does not answer."""
    try:
        return await explain(request, name)
    except RequestFailed:
        return ""


async def _preview(
    request: HttpRequest, found: ManifestDetails, after: datetime, count: int, *, each: bool = False
) -> PreviewAnswer:
    """Return the next fires; none if the scheduler does not answer."""
    name = found.status.external_id
    try:
        return await preview(request, name, after=after, count=count, each=each)
    except Unavailable:
        note = "the scheduler does not answer, so the next fires are unknown"
        return PreviewAnswer(manifest=name, zone=found.status.zone, note=note)


async def _resuming(request: HttpRequest, found: ManifestDetails) -> str:
    """Describe the effect on this manifest if its pauses end now."""
    if found.status.held_by != "paused":
        return ""
    try:
        message = ResumeRequest(
            pauses=[pause.pause for pause in found.status.pauses],
            manifests=[found.status.external_id],
            dry_run=True,
        )
        answer = await ask(request, subjects.RESUME_REQUEST, message, ResumeAnswer)
    except RequestFailed as error:
        return str(error)
    return "; ".join(f"If it resumes now: {manifest.text}." for manifest in answer.manifests)


def _undecided_since(found: ManifestDetails, now: datetime) -> datetime:
    """Include excluded times, which are recorded with the next allowed fire."""
    due_at = found.status.next_due_at
    if due_at is None or due_at > now or found.status.held_by is not None:
        return now
    return due_at - timedelta(microseconds=1)


def _with_pause(past: Past, found: ManifestDetails, now: datetime) -> Past:
    """Add the current pause, which is recorded when it ends."""
    due_at, held_by = found.status.next_due_at, found.status.held_by
    if held_by is None or due_at is None or due_at > now:
        return past
    pause = Stretch(first_due_at=due_at, last_due_at=now, state="skipped", reason=held_by)
    return structs.replace(past, stretches=[*past.stretches, pause])
