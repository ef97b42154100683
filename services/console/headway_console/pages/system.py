"""The system: backlogs of passes, services, streams, and tables."""

import asyncio
from importlib import metadata
from typing import Any

from headway_clock import utc_now
from litestar import Request, Response, get

from headway_console.access.guards import needs
from headway_console.pages.shell import Page, show
from headway_console.reading.system import read_system
from headway_console.streams import read_services, read_streams

# Title of each pass, and the contents of its backlog.
PASSES = {
    "tick": ("tick", "due manifests"),
    "scheduler_outbox": ("scheduler relay", "messages to publish"),
    "dispatcher_outbox": ("dispatcher relay", "messages to publish"),
    "dispatcher_intake": ("work intake", "queued work to receive"),
    "scheduler_intake": ("outcome intake", "outcomes to receive"),
    "projector": ("projector", "events of workers to record"),
}


@get("/system", opt=needs("viewer"))
async def system(request: Request[Any, Any, Any]) -> Response[str]:
    """Show the state of the system."""
    broker = request.app.state.broker
    async with request.app.state.database.acquire() as connection:
        found, streams, services = await asyncio.gather(
            read_system(connection, now=utc_now()), read_streams(broker), read_services(broker)
        )
    return show(
        request,
        "system.html",
        system=found,
        health=found.health,
        streams=streams,
        services=services,
        passes=PASSES,
        version=metadata.version("headway-console"),
    )


PAGE = Page(title="System", path="/system", key="y", handlers=(system,))
