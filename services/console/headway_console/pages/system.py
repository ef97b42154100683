"""The system: whether the passes do their work, and what they stand on."""

import asyncio
from importlib import metadata
from typing import Any

from headway_clock import utc_now
from litestar import Request, Response, get

from headway_console.access.guards import needs
from headway_console.pages.shell import Page, show
from headway_console.reading.system import read_system
from headway_console.streams import read_services, read_streams

# What a backlog is a backlog of.
PASSES = {
    "tick": ("tick", "manifests that are due and not yet decided"),
    "scheduler_outbox": ("relay of the scheduler", "messages written and not yet sent"),
    "dispatcher_outbox": ("relay of the dispatcher", "messages written and not yet sent"),
    "dispatcher_intake": ("intake of the dispatcher", "work that it has not heard of yet"),
    "scheduler_intake": ("intake of the scheduler", "outcomes that it has not heard of yet"),
    "projector": ("projector", "events of workers, until they are written down"),
}


@get("/system", opt=needs("viewer"))
async def system(request: Request[Any, Any, Any]) -> Response[str]:
    """How the system stands."""
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
