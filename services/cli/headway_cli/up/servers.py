"""What `up` stands on: PostgreSQL and NATS, embedded or by URL, with their schemas in place."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime

from headway_embedded import run_servers
from headway_postgres_kit import Database
from msgspec import Struct

from headway_cli.serve.services import apply_migrations
from headway_cli.serve.wait_for_servers import reach_broker, reach_database
from headway_cli.up.plan import Plan
from headway_cli.up.summary import read_now
from headway_cli.up.worker_process import Part

Say = Callable[[str], None]


class Ground(Struct, frozen=True, kw_only=True):
    """Servers that answer, and the moment from which on we count."""

    database_url: str
    nats_url: str
    database: Database
    since: datetime
    parts: list[Part]


async def lay_ground(stack: AsyncExitStack, plan: Plan, say: Say) -> Ground:
    """Start or reach the servers and bring the schemas up to date; the stack ends it all."""
    database_url, nats_url, parts = await _find_servers(stack, plan, say)
    database = await reach_database(database_url, name="headway-up", wait=plan.wait)
    stack.push_async_callback(database.close)
    credentials = plan.settings.nats_creds
    # Only to see that it is there: each service has a connection of its own.
    broker = await reach_broker(
        nats_url, name="headway-up", credentials=credentials, wait=plan.wait
    )
    await broker.close()
    await apply_migrations(database)
    return Ground(
        database_url=database_url,
        nats_url=nats_url,
        database=database,
        since=await read_now(database),
        parts=parts,
    )


async def _find_servers(stack: AsyncExitStack, plan: Plan, say: Say) -> tuple[str, str, list[Part]]:
    """The URLs of both servers, those given or those of servers that we run."""
    database_url, nats_url = plan.settings.database_url, plan.settings.nats_url
    if database_url and nats_url:
        return database_url, nats_url, []
    wanted = {"PostgreSQL": not database_url, "NATS": not nats_url}
    names = [name for name in wanted if wanted[name]]
    say(f"starting {' and '.join(names)} on the data folder {plan.data}")
    servers = await stack.enter_async_context(
        run_servers(plan.data, postgres=wanted["PostgreSQL"], nats=wanted["NATS"])
    )
    for note in servers.notes:
        say(note)
    parts = [
        Part(name=server.title, process=server.process, where=f"see {server.log}")
        for server in (servers.postgres, servers.nats)
        if server is not None
    ]
    return database_url or servers.database_url, nats_url or servers.nats_url, parts
