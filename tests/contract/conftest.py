"""Real NATS servers for the facts in this folder, and a connection to them.

The facts are what the design takes for granted about the broker. They are proved against the
very binary that the lock file pins, so an upgrade that changes one fails here and names it.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable

import nats
import pytest
import pytest_asyncio
from headway_embedded import NatsServer, free_port
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError

START_SECONDS = 20
ANCHOR = "CONTRACT_ANCHOR"
NO_SUITABLE_PEERS = 10005
NUMBERS = itertools.count(1)


@pytest_asyncio.fixture(scope="session")
async def nats_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of one server with JetStream."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    await server.start()
    yield server.url
    await server.stop()


@pytest_asyncio.fixture(scope="session")
async def nats_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The addresses of a cluster of three, separated by commas."""
    routes = set[int]()
    while len(routes) < 3:
        routes.add(free_port())
    peers = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
    servers = [
        NatsServer(
            tmp_path_factory.mktemp(f"member-{route}"),
            config_extra=f"cluster {{ name: contract, listen: "
            f'"127.0.0.1:{route}", routes: [{peers}] }}',
        )
        for route in routes
    ]
    await asyncio.gather(*(server.start() for server in servers))
    yield ",".join(server.url for server in servers)
    await asyncio.gather(*(server.stop() for server in servers))


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Make a stream's name that was never used.

    A stream that is created just after one of the same name was deleted may come back with the
    messages and consumers of the old one.
    """
    return lambda stream: f"{stream}_{next(NUMBERS)}"


@pytest.fixture
async def connection(nats_url: str) -> AsyncIterator[Client]:
    """A connection to the single server."""
    client = await nats.connect(nats_url)
    yield client
    await client.close()


@pytest.fixture
async def jetstream(connection: Client) -> AsyncIterator[JetStreamContext]:
    """JetStream of the single server, for each test without streams."""
    context = connection.jetstream()
    await add_anchor(context, replicas=1)
    yield context
    await delete_streams(context)


@pytest.fixture
async def members(nats_cluster_url: str) -> AsyncIterator[list[Client]]:
    """A connection to each member of the cluster, for each test without streams."""
    clients = [await nats.connect(url) for url in nats_cluster_url.split(",")]
    await add_anchor(clients[0].jetstream(timeout=1), replicas=len(clients))
    yield clients
    await delete_streams(clients[0].jetstream())
    for client in clients:
        await client.close()


async def add_anchor(context: JetStreamContext, replicas: int) -> None:
    """Keep a stream that no test uses.

    After the last stream of an account the server deletes their common folder too, and a stream
    that is created at that moment fails with 10049. In a cluster it also shows that the leader
    has heard of every peer, which may be later than all of them being healthy.
    """
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                await context.add_stream(
                    name=ANCHOR, subjects=["contract.anchor"], num_replicas=replicas
                )
            except NatsTimeoutError:
                continue  # no server answers before the cluster's first election
            except BadRequestError as refusal:
                if refusal.err_code != NO_SUITABLE_PEERS:
                    raise
                await asyncio.sleep(0.05)
            else:
                return


async def delete_streams(context: JetStreamContext) -> None:
    """Streams may not share subjects, so what one test made must go before the next."""
    for stream in await context.streams_info():
        assert stream.config.name is not None
        if stream.config.name != ANCHOR:
            await context.delete_stream(stream.config.name)
