"""Is all well, what goes on, what needs somebody?"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headway_clock import utc_now
from litestar import Request, Response, get
from msgspec import Struct

from headway_console.access.guards import needs
from headway_console.pages.charts import throughput
from headway_console.pages.shell import Page, show
from headway_console.pages.zones import zone_of
from headway_console.reading.groups import GroupRow
from headway_console.reading.overview import Overview, Throughput, read_overview, read_throughput
from headway_console.reading.system import Backlog, state_of

# As the dispatcher, by default, gives up a worker.
_ALIVE = timedelta(seconds=60)
_SHOWN_GROUPS = 12

_PASSES = {
    "tick": ("Tick", "decides what is due", "fire times that nobody has decided"),
    "scheduler_outbox": ("Scheduler's relay", "sends what is decided", "messages to send"),
    "dispatcher_outbox": ("Dispatcher's relay", "sends orders and outcomes", "messages to send"),
    "dispatcher_intake": ("Intake of work", "takes up what is queued", "works on their way"),
    "scheduler_intake": ("Intake of outcomes", "hears how work ended", "outcomes on their way"),
    "projector": ("Projector", "writes down what workers tell", "events"),
}


class PassLine(Struct, frozen=True, kw_only=True):
    """One pass, and whether its work is being done."""

    title: str
    does: str
    of_what: str
    state: str
    backlog: Backlog


def lines_of(overview: Overview) -> list[PassLine]:
    """The passes, each with a word for how it goes."""
    return [
        PassLine(
            title=_PASSES[one.name][0],
            does=_PASSES[one.name][1],
            of_what=_PASSES[one.name][2],
            state=state_of(one, now=overview.now),
            backlog=one,
        )
        for one in overview.health.backlogs
    ]


def troubles_of(overview: Overview, lines: list[PassLine]) -> list[str]:
    """What somebody should see to, in sentences."""
    found = []
    if not overview.health.dispatchers:
        found.append("No dispatcher was heard of: nothing runs. Start 'headway dispatcher'.")
    if not overview.counts.workers:
        found.append("No worker is alive: work waits. Start one with 'headway worker'.")
    found += [
        f"{line.title} is {line.state}: {line.backlog.waiting} {line.of_what}."
        for line in lines
        if line.state != "ok"
    ]
    return found


def begins_now(day: Sequence[Throughput]) -> bool:
    """Whether all of a day's runs ended in its last hour: then that is the hour to look at."""
    return not any(one.completed or one.failed or one.cancelled for one in day[:-2])


def busiest(groups: list[GroupRow]) -> list[GroupRow]:
    """Groups by how much goes on in them, then by name."""
    return sorted(groups, key=lambda one: (-one.active - sum(one.waiting.values()), one.name))


@get("/", opt=needs("viewer"))
async def overview_page(request: Request[Any, Any, Any]) -> Response[str]:
    """How things stand."""
    now = utc_now()
    async with request.app.state.database.acquire() as connection:
        found = await read_overview(connection, now=now, heard_since=now - _ALIVE)
        shown, is_young = found.day, begins_now(found.day)
        if is_young:
            shown = await read_throughput(
                connection, since=now - timedelta(hours=1), until=now, width=timedelta(minutes=1)
            )
    lines = lines_of(found)
    return show(
        request,
        "overview.html",
        overview=found,
        lines=lines,
        troubles=troubles_of(found, lines),
        groups=busiest(found.groups)[:_SHOWN_GROUPS],
        chart=throughput(shown, zone_of(request)),
        is_young=is_young,
        ended=sum(one.completed for one in shown),
        failed=sum(one.failed for one in shown),
        cancelled=sum(one.cancelled for one in shown),
    )


PAGE = Page(title="Overview", path="/", handlers=(overview_page,), key="o")
