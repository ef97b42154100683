"""The overview: health, activity, and problems."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from headway_clock import utc_now
from litestar import Response, get

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages import throughput
from headway_console.pages.shell import show
from headway_console.reading import system
from headway_console.services import HttpRequest, read

_SHOWN_GROUPS = 12
_OUTCOMES = ("completed", "failed", "cancelled")

# Title of each pass, its purpose, and the contents of its backlog.
PASSES = {
    "tick": ("Tick", "decides what is due", "undecided fire times"),
    "scheduler_outbox": ("Scheduler relay", "publishes decisions", "messages to publish"),
    "dispatcher_outbox": ("Dispatcher relay", "sends orders and outcomes", "messages to publish"),
    "dispatcher_intake": ("Work intake", "receives queued work", "messages to receive"),
    "scheduler_intake": ("Outcome intake", "receives outcomes", "messages to receive"),
    "projector": ("Projector", "records events of workers", "events to record"),
}


def troubles_of(overview: system.Overview, states: Mapping[str, str]) -> list[str]:
    """Describe the problems that need attention, by the states of the passes."""
    found = []
    if not overview.health.dispatchers:
        found.append("No dispatcher is running. Start 'headway dispatcher'.")
    if not overview.counts.workers:
        found.append("No worker is alive, so work waits. Start 'headway worker'.")
    for backlog in overview.health.backlogs:
        title, _, contents = PASSES[backlog.name]
        if states[backlog.name] != "ok":
            found.append(f"{title} is {states[backlog.name]}: {backlog.waiting} {contents}.")
    return found


def begins_now(day: Sequence[system.Throughput]) -> bool:
    """Tell whether all runs of the day ended in its last hour."""
    return not any(slot.completed or slot.failed or slot.cancelled for slot in day[:-2])


@get("/", opt=needs("viewer"))
async def overview_page(request: HttpRequest) -> Response[str]:
    """Show the overview."""
    now, zone = utc_now(), fields.shown_zone(request)
    alive = timedelta(seconds=request.app.state.settings.orphan_timeout_seconds)
    found = await read(request, system.read_overview, now=now, heard_since=now - alive)
    is_young = begins_now(found.day)
    shown, width = found.day, timedelta(minutes=1 if is_young else 30)
    if is_young:
        until = system.end_of_slot(now, width)
        shown = await read(request, system.read_throughput, until=until, width=width, slots=60)
    since, until = shown[0].at, shown[-1].at + width
    backlogs = found.health.backlogs
    states = {backlog.name: system.state_of(backlog, now=now) for backlog in backlogs}
    busiest = sorted(
        found.groups, key=lambda group: (-group.active - sum(group.waiting.values()), group.name)
    )
    return show(
        request,
        "overview.html",
        overview=found,
        passes=PASSES,
        states=states,
        troubles=troubles_of(found, states),
        groups=busiest[:_SHOWN_GROUPS],
        chart=throughput.draw(shown, width=width, zone=zone),
        is_young=is_young,
        ended=[
            (
                state,
                sum(getattr(slot, state) for slot in shown),
                throughput.runs_between(since, until, zone, state),
            )
            for state in _OUTCOMES
        ],
    )
