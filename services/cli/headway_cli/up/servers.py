"""The servers of `up`; while they start, the code of the services is loaded."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from importlib import import_module
from typing import Any

from headway_embedded import Server, run_servers
from headway_postgres_kit import Database
from msgspec import Struct

from headway_cli.serve.servers import apply_migrations, reach_broker, reach_database
from headway_cli.up.plan import Plan
from headway_cli.up.summary import queries, read_value

Say = Callable[[str], None]


class Servers(Struct, frozen=True, kw_only=True):
    """PostgreSQL and NATS, and the time from which figures count."""

    urls: dict[str, str]
    database: Database
    since: datetime
    embedded: Sequence[Server]


async def start_servers(stack: AsyncExitStack, plan: Plan, say: Say) -> Servers:
    """Start or reach the servers and migrate the schemas; the stack stops them."""
    loading = asyncio.create_task(asyncio.to_thread(import_module, "headway_cli.up.services"))
    database_url, nats_url = plan.settings.database_url, plan.settings.nats_url
    embedded: Sequence[Server] = ()
    names = [name for name, url in (("PostgreSQL", database_url), ("NATS", nats_url)) if not url]
    if names:
        say(f"starting {' and '.join(names)} on the data folder {plan.data}")
        servers = await stack.enter_async_context(
            run_servers(plan.data, postgres=not database_url, nats=not nats_url)
        )
        for note in servers.notes:
            say(note)
        embedded = servers.running
        database_url, nats_url = database_url or servers.database_url, nats_url or servers.nats_url
    urls = {"database_url": str(database_url), "nats_url": str(nats_url)}
    database = await stack.enter_async_context(
        reach_database(urls["database_url"], name="headway-up", wait=plan.wait)
    )
    # Only to see that it answers: each service has a connection of its own.
    terms: Any = {"credentials": plan.settings.nats_creds, "wait": plan.wait}
    async with reach_broker(urls["nats_url"], name="headway-up", **terms):
        await apply_migrations(database)
    await loading
    since = await read_value(database, queries["now"])
    return Servers(urls=urls, database=database, since=since, embedded=embedded)
