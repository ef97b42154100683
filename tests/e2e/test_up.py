"""`headway up`: it runs, it stops in order at any moment, and it leaves nothing behind."""

import asyncio
import contextlib
import getpass
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from headway_embedded import free_port
from support.invariants import check_invariants
from support.world import until

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

APP = """
from headway import App, every
app = App("hello")
@app.job("hello")
@every(seconds=1)
async def hello(ctx):
    print("hello from a job")
"""
# Imports once, in `up` itself, and fails in the worker.
IMPORTS_ONCE = """
from pathlib import Path
from headway import App
Path(__file__).with_name("imported").touch(exist_ok=False)
app = App("once")
"""
# A worker command that fails at first, and then leaves a child behind unless somebody sees to it.
OTHER = """
import os, signal, subprocess, sys, time
from pathlib import Path
if sys.argv[1:] == ["child"]:
    time.sleep(600)
first = Path(__file__).with_name("first")
if not first.exists():
    first.touch()
    sys.exit(3)
subprocess.Popen([sys.executable, __file__, "child"])
print("other worker on", os.environ["HEADWAY_NATS_URL"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("other worker drains", flush=True), sys.exit()))
signal.pause()
"""


class Up:
    """One `headway up`, with what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        while line := await self.process.stderr.readline():
            self.said += line.decode()

    async def until(self, condition: Callable[[], bool], what: str, within: float = 30) -> None:
        """Wait for a condition as long as the process lives."""

        async def ask() -> bool:
            return condition() or self.process.returncode is not None

        try:
            await until(ask, within=within, what=what)
            assert condition(), f"it ended before {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said}") from None

    async def until_said(self, words: str) -> None:
        await self.until(lambda: words in self.said, words)

    async def end(self, within: float = 30) -> int:
        """Its exit code, and everything it said is heard."""
        async with asyncio.timeout(within):
            await self._hearing
            return await self.process.wait()

    async def report(self) -> dict:
        """The last line of its standard output."""
        return json.loads((await self.process.stdout.read()).decode().splitlines()[-1])


class Place:
    """A folder with an app and a data folder, where `up` is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.app = folder / "app.py"
        self.app.write_text(APP)

    def command(self, *arguments: str) -> list[str]:
        up = [sys.executable, "-m", "headway_cli", "up", str(self.app)]
        return [*up, "--data", str(self.data), *arguments]

    @contextlib.asynccontextmanager
    async def up(self, *arguments: str, **environment: str) -> AsyncIterator[Up]:
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            env={**CLEAN, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Up(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def left_behind(self) -> list[str]:
        """The processes that have to do with this place, by their words or where they run."""
        return [
            f"{process.name} {words}"
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and int(process.name) != os.getpid()
            for words in [_words_of(process)]
            if str(self.folder) in words
        ]

    async def until_nothing_is_left(self, within: float) -> None:
        async def nothing_is_left() -> bool:
            return not self.left_behind()

        try:
            await until(nothing_is_left, within=within, what="nothing is left behind")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.left_behind()}") from None


def _words_of(process: Path) -> str:
    try:
        state = (process / "stat").read_text().rpartition(") ")[2][0]
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return "" if state == "Z" else f"{words} in {(process / 'cwd').readlink()}"
    except OSError:  # it has just ended
        return ""


async def get(address: str, path: str) -> str:
    """The body of an answer to plain HTTP."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2].strip()


@pytest.fixture(scope="module")
def made_data(tmp_path_factory) -> Path:
    """A data folder that `up` has been run on before."""
    place = Place(tmp_path_factory.mktemp("made"))
    subprocess.run(place.command("--for", "0.1"), env=CLEAN, check=True, timeout=60)
    return place.data


@pytest_asyncio.fixture
async def place(tmp_path) -> AsyncIterator[Place]:
    """A place without data; nothing of it may be left at the end."""
    (tmp_path / "place").mkdir()
    made = Place(tmp_path / "place")
    yield made
    await made.until_nothing_is_left(within=10)
    shutil.rmtree(made.folder)


@pytest.fixture
def used_place(place, made_data) -> Place:
    """A place that `up` has been run in before."""
    subprocess.run(["cp", "-a", made_data, place.data], check=True)
    return place


@pytest.mark.thorough
@pytest.mark.timeout(150)
@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.long)])
async def test_the_demo_loses_and_doubles_nothing(place, database, database_url, nats_url, seconds):
    place.app = ROOT / "examples" / "demo_app.py"
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up("--for", str(seconds), "--json", **urls) as up:
        assert await up.end(within=120) == 0, up.said
        report = await up.report()
    assert not {one.name for one in place.data.iterdir()} & {"postgres", "nats"}
    async with database.acquire() as connection:

        async def count(query: str) -> int:
            return await connection.fetchval(f"SELECT count(*) FROM {query}")

        assert await count("dispatcher.work_queue WHERE state = 'dispatched'") == 0
        # What is left waits for something that does not come by itself, or not soon.
        assert await count("dispatcher.work_queue WHERE state <> 'settled'") == await count(
            "dispatcher.waiting WHERE reason IN"
            " ('group_disabled', 'no_worker', 'not_before', 'rate')"
        )
        assert await count("scheduler.occurrence WHERE decision = 'queued'") == await count(
            "dispatcher.work_queue"
        )
        assert await count("dispatcher.metadata WHERE finished_at IS NULL") == 0
        assert await count("dispatcher.metadata") == await count(
            "dispatcher.history WHERE accepted AND type IN ('headway.run.completed.v1',"
            " 'headway.run.failed.v1', 'headway.run.cancelled.v1')"
        )
        assert report == {
            "occurrences": await count("scheduler.occurrence WHERE decision = 'queued'"),
            "runs_completed": await count("dispatcher.metadata WHERE state = 'completed'"),
            "runs_failed": await count("dispatcher.metadata WHERE state = 'failed'"),
            "dead_letters": await count("dispatcher.dead_letter"),
            "runs_in_doubt": 0,
            "lateness_ms": report["lateness_ms"],
        }
        await it_has_something_to_show(connection)
    assert report["occurrences"] > 1.5 * seconds
    assert 0 <= report["lateness_ms"]["p50"] <= report["lateness_ms"]["p99"]
    await check_invariants(database)


async def it_has_something_to_show(connection) -> None:
    """For every page of the console there is something in what the demo leaves behind."""

    async def found(query: str) -> set:
        return {row[0] for row in await connection.fetch(query)}

    reasons = await found("SELECT split_part(reason, ':', 1) FROM scheduler.occurrence")
    assert reasons >= {"manifest_disabled", "still_outstanding"}
    # Excluded times are decided with the next that is allowed.
    assert "workday-report" in await found(
        "SELECT external_id FROM scheduler.manifest WHERE next_due_at < now() AND wake_at > now()"
    )
    assert len(await found("SELECT fingerprint FROM dispatcher.dead_letter")) == 2
    assert await found("SELECT DISTINCT state FROM dispatcher.metadata") == {
        *("completed", "failed", "cancelled"),
    }
    assert await found("SELECT reason FROM dispatcher.waiting") >= {"group_disabled", "no_worker"}
    assert f"operator/{getpass.getuser()}" in await found("SELECT source FROM scheduler.history")
    assert await found("SELECT external_id FROM scheduler.manifest WHERE paused_at IS NOT NULL")
    assert await found("SELECT depends_on FROM scheduler.manifest WHERE depends_on IS NOT NULL")
    assert await found("SELECT run_id FROM dispatcher.run_log")


@pytest.mark.long
async def test_twice_in_a_row_on_one_folder(place):
    consoles = set()
    for created in (1, 0):
        async with place.up("--for", "3", "--json") as up:
            assert await up.end() == 0, up.said
            report = await up.report()
        assert place.left_behind() == []
        [declared] = re.findall(r".*definitions declared.*", up.said)
        assert re.search(rf"created\W+{created}\W+changed\W+0\b", declared), declared
        assert "recovered" not in up.said, up.said
        assert set(report) == {
            *("occurrences", "runs_completed", "runs_failed", "dead_letters"),
            *("runs_in_doubt", "lateness_ms"),
        }
        assert report["occurrences"] == report["runs_completed"] >= 2
        assert report["runs_failed"] == report["dead_letters"] == 0
        assert "hello from a job" in up.said
        consoles |= set(re.findall(r"console: (\S+)", up.said))
    assert len(consoles) == 1


async def test_in_a_terminal_the_view_is_live_and_the_cursor_comes_back(used_place):
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *used_place.command("--for", "5", "--json"),
        env={**CLEAN, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = await asyncio.to_thread(read_terminal, ours)
    assert await process.wait() == 0, drawn
    assert json.loads(await process.stdout.read())["runs_completed"] >= 1, drawn
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    # The view is wiped away before a line of the worker, and drawn anew under it.
    assert re.search(r"\x1b\[2Khello from a job\r\n\r\n\x1b\[1m1 manifest", drawn), drawn
    for words in ("1 manifest ", " running ", " completed ", " failed", "next due", "latest runs"):
        assert words in plain
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1
    # A run that was under way may still say something; the view is gone.
    _, stopping, rest = plain.partition("stopping: no new work")
    assert stopping, plain
    assert set(rest.splitlines()[1:]) <= {"hello from a job"}, plain


def read_terminal(descriptor: int) -> str:
    """Everything that is drawn on a terminal until nobody draws on it any more."""
    with open(descriptor, "rb", buffering=0) as terminal:
        drawn = b""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while piece := terminal.read(65536):
                drawn += piece
    return drawn.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_in_order(used_place, number):
    address = f"127.0.0.1:{free_port()}"
    async with used_place.up("--json", "--health-address", address) as up:
        await up.until_said("hello from a job")
        assert await get(address, "/readyz") == "headway is ready"
        told = await get(address, "/metrics")
        assert "headway_scheduler_leader 1.0" in told
        assert 'headway_dispatcher_metrics_source_up{source="database"} 1.0' in told
        async with used_place.up() as other:
            assert await other.end() == 2
            assert other.said.splitlines()[-1].startswith("headway: data folder")
            assert f"is in use by process {up.process.pid}; stop it" in other.said
        up.process.send_signal(number)
        assert await up.end(within=10) == 0, up.said
        assert used_place.left_behind() == []
        report = await up.report()
    assert report["occurrences"] == report["runs_completed"] >= 1


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "the data folder is locked"),
        (signal.SIGTERM, "the database is being made"),
        (signal.SIGINT, "the worker is awaited"),
    ],
)
@pytest.mark.long
async def test_a_signal_while_it_starts_takes_everything_back(place, number, moment):
    moments = {
        "the data folder is locked": (place.data / "lock").exists,
        "the database is being made": (place.data / "postgres.new").exists,
        "the worker is awaited": lambda: "dispatcher started" in up.said,
    }
    async with place.up("--json") as up:
        await up.until(moments[moment], moment)
        up.process.send_signal(number)
        assert await up.end(within=10) == 130, up.said
        assert await up.process.stdout.read() == b""
    assert up.said.splitlines()[-1] == "headway: stopped before it had started"
    await place.until_nothing_is_left(within=5)
    async with place.up("--for", "0.1") as up:
        assert await up.end() == 0, up.said


@pytest.mark.long
async def test_kill_takes_all_with_it_and_the_next_start_recovers(used_place):
    async with used_place.up() as up:
        await up.until_said("hello from a job")
        assert len(used_place.left_behind()) > 5
        up.process.kill()
        await used_place.until_nothing_is_left(within=8)
    # A run that was under way is given up only after the orphan timeout, so none is awaited. But a
    # message that was being handled when all was killed comes again after 30 s, and `up` waits for
    # that for 20 s before it gives up.
    async with used_place.up("--for", "0.5") as up:
        assert await up.end(within=45) == 0, up.said
    assert "the last run ended without a clean stop; its data was recovered" in up.said


@pytest.mark.thorough
async def test_a_worker_that_has_drained_is_started_again(place, database_url, nats_url, world):
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up(**urls) as up, world.client() as client:
        await up.until_said("hello from a job")
        [before] = await client.workers()
        await client.drain(before.worker)
        await up.until_said("the worker has drained; restarting it")

        async def another_lives() -> bool:
            return any(one.worker != before.worker for one in await client.workers())

        await until(another_lives, within=20, what="another worker lives")
        up.process.send_signal(signal.SIGINT)
        assert await up.end() == 0, up.said


@pytest.mark.thorough
async def test_a_worker_that_dies_is_an_error(place, database_url, nats_url):
    place.app.write_text(IMPORTS_ONCE)
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up("--json", **urls) as up:
        assert await up.end() == 2
        assert await up.process.stdout.read() == b""
    *_, cause, consequence = up.said.splitlines()
    assert cause.startswith("headway: cannot import the app")
    assert "FileExistsError" in cause
    assert consequence.startswith("headway: the worker exited unexpectedly with code 2")
    assert "Traceback" not in up.said


async def test_a_server_that_dies_is_an_error(used_place):
    async with used_place.up() as up:
        await up.until_said("hello from a job")
        server = next(
            line
            for line in used_place.left_behind()
            if "nats-server -c" in line and "supervisor" not in line
        )
        os.kill(int(server.split()[0]), signal.SIGKILL)
        assert await up.end(within=30) == 2
    assert "headway: NATS exited unexpectedly with code -9: see " in up.said.splitlines()[-1]


@pytest.mark.thorough
async def test_another_worker_is_started_again_and_stopped_with_all_it_started(
    place, database_url, nats_url
):
    other = place.folder / "other.py"
    other.write_text(OTHER)
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    command = f"{sys.executable} {other}"
    async with place.up("--worker-command", command, **urls) as up:
        await up.until_said(f"other worker on {nats_url}")
        [entry] = [line for line in up.said.splitlines() if "worker command ended" in line]
        assert all(words in entry for words in (command, "exit code 3", "0.5")), entry
        await up.until(lambda: any(one.count("child") for one in place.left_behind()), "a child")
        up.process.send_signal(signal.SIGINT)
        assert await up.end(within=15) == 0, up.said
        assert place.left_behind() == []
    assert "other worker drains" in up.said


FOREIGN = """
app: foreign
jobs:
  echo: {input_schema: {type: string}}
manifests:
  echo-often: {job: echo, every: {seconds: 1}, input: hello}
"""


async def test_an_app_in_yaml_runs_with_workers_of_another_kind_alone(place):
    place.app = place.folder / "foreign.yaml"
    place.app.write_text(FOREIGN)
    async with place.up() as up:
        assert await up.end(within=30) == 2
    assert "name the program that does, as in --worker-command" in up.said
    command = f"{sys.executable} {Path(__file__).parent / 'bare_worker.py'} echo bare-1"
    async with place.up("--for", "8", "--json", "--worker-command", command) as up:
        assert await up.end(within=60) == 0, up.said
        report = await up.report()
    assert report["runs_completed"] >= 1, report
    assert place.left_behind() == []
