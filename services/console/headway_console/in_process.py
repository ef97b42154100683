"""A console without a port, for a client in the same process."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, cast

import httpx
from headway import Client
from headway_clock import utc_now
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database

from headway_console.access.tokens import Tokens, new_token
from headway_console.settings import ConsoleSettings
from headway_console.wiring import ConsoleService, console_application

_URL = "http://127.0.0.1"


@asynccontextmanager
async def open_client(
    database_url: str, nats_url: str, *, actor: str, **options: Any
) -> AsyncIterator[Client]:
    """Connect a console in this process, and open a client of it."""
    async with AsyncExitStack() as opened:
        database = await Database.connect(database_url, name="headway-client", max_connections=4)
        opened.push_async_callback(database.close)
        broker = await Broker.connect(nats_url, name="headway-client")
        opened.push_async_callback(broker.close)
        yield await opened.enter_async_context(client_of(database, broker, actor=actor, **options))


@asynccontextmanager
async def client_of(
    database: Database,
    broker: Broker,
    *,
    actor: str,
    now: Callable[[], datetime] = utc_now,
    **settings: Any,
) -> AsyncIterator[Client]:
    """Open a client of a console that uses these connections; the audit names the actor."""
    token, entry = new_token(actor, "admin")
    service = ConsoleService(database, broker)
    app = console_application(
        ConsoleSettings(database_url="", nats_url="", **settings), service, Tokens(None, (entry,))
    )
    transport = httpx.ASGITransport(app=cast("Any", app))
    try:
        async with Client(_URL, token=token, transport=transport, now=now) as client:
            yield client
    finally:
        await service.feed.stop()
