"""PgBouncer in front of PostgreSQL: session pooling works; shared sessions are refused."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest
from headway_embedded import free_port
from headway_postgres_kit import Database, SessionsShared
from support.apps import nightly
from support.world import World, until

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
REMEDY = "give the address of PostgreSQL itself, or of a pool with pool_mode=session"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        PGBOUNCER is None, reason="there is no pgbouncer here: apt-get install pgbouncer"
    ),
]


@contextlib.contextmanager
def pgbouncer(database_url, folder, mode) -> Iterator[str]:
    """Run PgBouncer in front of the test's database and yield its URL."""
    parts, port = urlsplit(database_url), free_port()
    config = folder / f"{mode}.ini"
    config.write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port} user={parts.username}"
        f" password={parts.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        # Enough sessions for the pools of a scheduler and a dispatcher.
        f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = 60\n"
        + ("user = nobody\n" if os.geteuid() == 0 else "")  # it refuses to run as root
    )
    process = subprocess.Popen([PGBOUNCER, config], stderr=subprocess.DEVNULL)
    try:
        yield urlunsplit(parts._replace(netloc=f"me@127.0.0.1:{port}"))
    finally:
        process.terminate()
        process.wait(20)


async def listens(url: str) -> bool:
    address = urlsplit(url)
    with contextlib.closing(socket.socket()) as link:
        return link.connect_ex((address.hostname, address.port)) == 0


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_shared_sessions_are_refused_with_the_remedy(database_url, tmp_path, mode):
    with pgbouncer(database_url, tmp_path, mode) as url:
        await until(lambda: listens(url), within=10, what="PgBouncer listens")
        with pytest.raises(SessionsShared, match=f"pool_mode=transaction.*{REMEDY}"):
            await Database.connect(url, name="test")


@pytest.mark.parametrize("command", ["scheduler", "dispatcher", "console", "migrate", "doctor"])
async def test_every_command_says_it_in_one_line(database_url, tmp_path, command):
    with pgbouncer(database_url, tmp_path, "transaction") as url:
        await until(lambda: listens(url), within=10, what="PgBouncer listens")
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "headway_cli", command],
            env={
                **os.environ,
                "HEADWAY_DATABASE_URL": url,
                "HEADWAY_NATS_URL": "nats://127.0.0.1:1",
                "HEADWAY_CONSOLE_ADDRESS": "127.0.0.1:0",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == (1 if command == "doctor" else 2), done.stderr
    output = done.stdout if command == "doctor" else done.stderr
    [line] = [text for text in output.splitlines() if REMEDY in text]
    assert "a connection pooler shares sessions" in line
    assert "Traceback" not in done.stderr


async def test_a_pool_with_a_session_for_each_client_serves(
    database_url, nats_url, database, broker, tmp_path
):
    app = nightly()
    with pgbouncer(database_url, tmp_path, "session") as url:
        await until(lambda: listens(url), within=10, what="PgBouncer listens")
        world = World(url, nats_url, database, broker)
        try:
            await world.run(app)
            await world.until_settled()
            # Limits hold behind PgBouncer, too.
            by_way = await Database.connect(url, name="test", answer_seconds=6)
            async with by_way.acquire() as connection:
                assert await connection.fetchval("SHOW statement_timeout") == "5s"
            await by_way.close()
        finally:
            await world.stop()
