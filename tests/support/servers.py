"""Real PostgreSQL and NATS for tests.

`HEADWAY_TEST_SERVERS` chooses where they come from: `embedded` (the default, from wheels),
`containers` (testcontainers, where Docker is at hand) or `external` (by the URLs in
`HEADWAY_DATABASE_URL` and `HEADWAY_NATS_URL`). Both serve a whole session. Each test has a database
of its own, and an empty account of its own in NATS, or the emptied server.
"""

import itertools
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from headway_cli.serve.servers import apply_migrations
from headway_clock import new_nonce
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database

SOURCE = os.environ.get("HEADWAY_TEST_SERVERS", "embedded")
_TEMPLATE = "headway_template"
# Tests take turns with them, so that what a test leaves behind is not deleted right away.
_ACCOUNTS = 40


@dataclass
class TestPostgres:
    """A server, and a migrated database on it to copy from."""

    __test__ = False

    url: str
    # Kept, because a new one for each statement takes longer than the statement.
    _connection: asyncpg.Connection | None = None

    async def prepare(self) -> None:
        """Make the template that every test's database is copied from."""
        await self._admin(f"DROP DATABASE IF EXISTS {_TEMPLATE}")
        await self._admin(f"CREATE DATABASE {_TEMPLATE}")
        database = await Database.connect(self.url_of(_TEMPLATE), name="template")
        await apply_migrations(database)
        await database.close()

    async def new_database(self, *, template: str = _TEMPLATE) -> str:
        """A database of its own for one test; returns its URL."""
        name = f"test_{new_nonce()}"
        await self._admin(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self.url_of(name)

    async def drop(self, url: str) -> None:
        """Drop a test's database, even with open connections."""
        name = urlsplit(url).path.lstrip("/")
        await self._admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def url_of(self, name: str) -> str:
        """The URL of another database on the same server."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    async def close(self) -> None:
        """Close the connection; the databases stay."""
        if self._connection is not None:
            await self._connection.close()

    async def _admin(self, statement: str) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self.url)
        await self._connection.execute(statement)


@asynccontextmanager
async def run_postgres(folder: Path) -> AsyncIterator[TestPostgres]:
    """PostgreSQL for a session of tests."""
    if SOURCE == "embedded":
        server = PostgresServer(folder, durable=False)
        await server.start()
        try:
            yield TestPostgres(server.url)
        finally:
            await server.stop()
    elif SOURCE == "containers":
        with postgres_container() as container:
            yield TestPostgres(container.get_connection_url(driver=None))
    else:
        yield TestPostgres(_external("HEADWAY_DATABASE_URL"))


@dataclass
class TestNats:
    """A server whose accounts share nothing, not even subjects."""

    __test__ = False

    urls: Iterator[str]

    async def empty_account(self) -> str:
        """An account without streams for one test; returns its URL."""
        url = next(self.urls)
        broker = await Broker.connect(url, name="tests")
        names = (await broker.api("STREAM.NAMES")).get("streams") or []
        for name in names:
            await broker.api(f"STREAM.DELETE.{name}")
        await broker.close()
        return url


@asynccontextmanager
async def run_nats(folder: Path) -> AsyncIterator[TestNats]:
    """NATS for a session of tests."""
    if SOURCE == "embedded":
        names = [f"test-{number}" for number in range(_ACCOUNTS)]
        accounts = (
            f"{name}: {{ jetstream: enabled, users: [{{ user: {name}, password: {name} }}] }}"
            for name in names
        )
        config = f"authorization {{}}\naccounts {{ {', '.join(accounts)} }}"
        server = NatsServer(folder, config_extra=config)
        await server.start()
        try:
            urls = [f"nats://{name}:{name}@127.0.0.1:{server.port}" for name in names]
            yield TestNats(itertools.cycle(urls))
        finally:
            await server.stop()
    elif SOURCE == "containers":
        with nats_container() as container:
            yield TestNats(itertools.repeat(container.nats_uri()))
    else:
        yield TestNats(itertools.repeat(_external("HEADWAY_NATS_URL")))


def postgres_container():
    """PostgreSQL in a container."""
    _need_docker()
    from testcontainers.community.postgres import PostgresContainer

    return PostgresContainer("postgres:18", dbname="headway")


def nats_container():
    """NATS with JetStream in a container."""
    _need_docker()
    from testcontainers.community.nats import NatsContainer

    return NatsContainer("nats:2.15", jetstream=True)


def needs_embedded() -> None:
    """Skip a test that stops and starts the servers themselves."""
    if SOURCE != "embedded":
        pytest.skip(f"stops the servers themselves, which HEADWAY_TEST_SERVERS={SOURCE} lends out")


def docker_is_at_hand() -> bool:
    """Whether a Docker engine answers."""
    if shutil.which("docker") is None:
        return False
    import docker
    from docker.errors import DockerException

    try:
        docker.from_env().ping()
    except DockerException:
        return False
    return True


def _need_docker() -> None:
    if not docker_is_at_hand():
        pytest.skip("HEADWAY_TEST_SERVERS=containers needs a Docker engine, and none answers")


def _external(variable: str) -> str:
    url = os.environ.get(variable)
    if not url:
        pytest.skip(f"HEADWAY_TEST_SERVERS=external needs {variable}")
    return url
