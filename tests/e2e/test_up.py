"""`headway up` runs, stops cleanly at any moment, and leaves no process behind."""

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
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from headway_embedded import free_port
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.up import CLEAN, FAILING, IMPORTS_ONCE, OTHER, Place, get
from support.world import until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def made_data(tmp_path_factory) -> Path:
    """A data folder that `up` has used before."""
    place = Place(tmp_path_factory.mktemp("made"))
    subprocess.run(place.command("--for", "0.1"), env=CLEAN, check=True, timeout=60)
    return place.data


@pytest_asyncio.fixture
async def place(tmp_path) -> AsyncIterator[Place]:
    """A place without data; no process of it may be left at the end."""
    (tmp_path / "place").mkdir()
    made = Place(tmp_path / "place")
    yield made
    await made.until_nothing_is_left(within=10)
    shutil.rmtree(made.folder)


@pytest.fixture
def used_place(place, made_data) -> Place:
    """A place that `up` has used before."""
    subprocess.run(["cp", "-a", made_data, place.data], check=True)
    return place


@pytest.mark.thorough
@pytest.mark.timeout(150)
@pytest.mark.parametrize("seconds", [20, pytest.param(60, marks=pytest.mark.long)])
async def test_the_demo_loses_no_work_and_runs_none_twice(
    place, database, database_url, nats_url, seconds
):
    place.app = ROOT / "examples" / "demo_app.py"
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up("--for", str(seconds), "--json", **urls) as up:
        assert await up.end(within=120) == 0, up.log
        report = await up.report()
    assert not {path.name for path in place.data.iterdir()} & {"postgres", "nats"}
    async with database.acquire() as connection:

        async def count(query: str) -> int:
            return await connection.fetchval(f"SELECT count(*) FROM {query}")

        assert await count("dispatcher.work_queue WHERE state = 'dispatched'") == 0
        # The rest waits for an operator, a worker, a time or a rate.
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
        await check_data_for_every_page(connection)
    assert report["occurrences"] > 1.5 * seconds
    assert 0 <= report["lateness_ms"]["p50"] <= report["lateness_ms"]["p99"]
    await check_invariants(database)


async def check_data_for_every_page(connection) -> None:
    """Check that the demo leaves data for every page of the console."""

    async def found(query: str) -> set:
        return {row[0] for row in await connection.fetch(query)}

    reasons = await found("SELECT split_part(reason, ':', 1) FROM scheduler.occurrence")
    assert reasons >= {"manifest_disabled", "still_outstanding"}
    # Excluded times are decided together with the next allowed time.
    assert "workday-report" in await found(
        "SELECT external_id FROM scheduler.manifest WHERE next_due_at < now() AND wake_at > now()"
    )
    assert len(await found("SELECT fingerprint FROM dispatcher.dead_letter")) == 2
    assert await found("SELECT DISTINCT state FROM dispatcher.run") == {
        *("completed", "failed", "cancelled"),
    }
    assert await found("SELECT reason FROM dispatcher.waiting") >= {"group_disabled", "no_worker"}
    assert f"operator/{getpass.getuser()}" in await found("SELECT source FROM scheduler.history")
    assert await found("SELECT external_id FROM scheduler.manifest WHERE paused")
    assert await found("SELECT depends_on FROM scheduler.manifest WHERE depends_on IS NOT NULL")
    assert await found("SELECT run_id FROM dispatcher.run_log")


@pytest.mark.long
async def test_twice_in_a_row_on_one_folder(place):
    consoles = set()
    for created in (1, 0):
        async with place.up("--for", "3", "--json") as up:
            assert await up.end() == 0, up.log
            report = await up.report()
        assert place.left_behind() == []
        [declared] = re.findall(r".*definitions declared.*", up.log)
        assert re.search(rf"created\W+{created}\W+changed\W+0\b", declared), declared
        assert "recovered" not in up.log, up.log
        assert set(report) == {
            *("occurrences", "runs_completed", "runs_failed", "dead_letters"),
            *("runs_in_doubt", "lateness_ms"),
        }
        assert report["occurrences"] == report["runs_completed"] >= 2
        assert report["runs_failed"] == report["dead_letters"] == 0
        assert "hello from a job" in up.log
        consoles |= set(re.findall(r"console: (\S+)", up.log))
    assert len(consoles) == 1


@pytest.mark.thorough
async def test_a_failure_is_shown_with_what_follows_and_its_block_at_every_start(
    place, database_url, nats_url
):
    place.app.write_text(FAILING)
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up(**urls) as up:
        await up.until_logged("manifest blocked")
        up.process.send_signal(signal.SIGINT)
        assert await up.end() == 0, up.log
    first, second = re.findall(r".* ERROR +dispatcher: (run failed .*)", up.log)
    assert 'job=import failure="ValueError: no rows" follows="attempt 1 of 2, next in 1 s"' in first
    assert "manifest=import-every" in first
    letter = re.search(r"dead letter (\S+): headway dead-letters retry \1\"", second)[1]
    assert 'follows="attempt 2 of 2, ' in second
    assert up.log.count("    Traceback (most recent call last):") == 2
    assert up.log.count("    ValueError: no rows") == 2
    assert "body failed" not in up.log  # the worker's entry of the same failure
    blocked = rf"ERROR +scheduler: manifest blocked manifest=import-every dead_letter={letter} "
    assert re.search(blocked + rf'remedy="headway dead-letters retry {letter}"', up.log), up.log
    async with place.up("--for", "0.1", HEADWAY_LOG_FORMAT="json", **urls) as up:
        assert await up.end() == 0, up.log
    assert f'"remedy": "headway dead-letters retry {letter}"' in up.log


def plain_colours(drawn: str) -> str:
    """Leave out colours and styles."""
    return re.sub(r"\x1b\[[0-9;]*m", "", drawn)


@pytest.mark.thorough
async def test_a_terminal_shows_a_live_view_and_gets_its_cursor_back(used_place):
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
    plain = re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\]8;.*?\x1b\\)", "", drawn)
    # The frame is erased before a line of the worker, and drawn again below it.
    assert re.search(r"\x1b\[2Khello from a job\r\n╭─ headway up ", plain_colours(drawn)), drawn
    for words in ("console http://127.0.0.1:", "1 manifest ", " completed, ", "NEXT", "LAST RUN"):
        assert words in plain
    assert "dispatcher started" not in plain  # wiring
    assert drawn.count("\x1b[?25l") == drawn.count("\x1b[?25h") == 1
    # A run in progress may still print a line; the view is gone.
    _, stopping, rest = plain.partition("stopping: no new work")
    assert stopping, plain
    assert set(rest.splitlines()[1:]) <= {"hello from a job"}, plain


def read_terminal(descriptor: int) -> str:
    """Return the output of a terminal until its other side is closed."""
    with open(descriptor, "rb", buffering=0) as terminal:
        drawn = b""
        with contextlib.suppress(OSError):  # Linux raises it when the other side is closed
            while piece := terminal.read(65536):
                drawn += piece
    return drawn.decode()


@pytest.mark.parametrize("number", first_in_each_tier([signal.SIGINT, signal.SIGTERM]))
async def test_a_signal_stops_it_cleanly(used_place, number):
    address = f"127.0.0.1:{free_port()}"
    async with used_place.up("--json", "--health-address", address) as up:
        await up.until_logged("hello from a job")
        assert await get(address, "/readyz") == "headway is ready"
        metrics = await get(address, "/metrics")
        assert "headway_scheduler_leader 1.0" in metrics
        assert 'headway_dispatcher_metrics_source_up{source="database"} 1.0' in metrics
        async with used_place.up() as other:
            assert await other.end() == 2
            assert other.log.splitlines()[-1].startswith("headway: data folder")
            assert f"is in use by process {up.process.pid}; stop it" in other.log
        up.process.send_signal(number)
        assert await up.end(within=10) == 0, up.log
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
async def test_a_signal_during_the_start_undoes_the_start(place, number, moment):
    moments = {
        "the data folder is locked": (place.data / "lock").exists,
        "the database is being made": (place.data / "postgres.new").exists,
        "the worker is awaited": lambda: "dispatcher started" in up.log,
    }
    async with place.up("--json", HEADWAY_LOG_FORMAT="json") as up:
        await up.until(moments[moment], moment)
        up.process.send_signal(number)
        assert await up.end(within=10) == 130, up.log
        assert await up.process.stdout.read() == b""
    assert up.log.splitlines()[-1] == "headway: stopped before it had started"
    await place.until_nothing_is_left(within=5)
    async with place.up("--for", "0.1") as up:
        assert await up.end() == 0, up.log


@pytest.mark.long
async def test_a_kill_ends_all_processes_and_the_next_start_recovers(used_place):
    async with used_place.up() as up:
        await up.until_logged("hello from a job")
        assert len(used_place.left_behind()) > 5
        up.process.kill()
        await used_place.until_nothing_is_left(within=8)
    # A run in progress fails only after the orphan timeout, so this test does not wait for it. A
    # message that was in progress at the kill is redelivered after 30 s, and `up` waits 20 s for it.
    async with used_place.up("--for", "0.5") as up:
        assert await up.end(within=45) == 0, up.log
    assert "the last run ended without a clean stop; its data was recovered" in up.log


@pytest.mark.thorough
async def test_a_worker_that_has_drained_is_started_again(place, database_url, nats_url, world):
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up(**urls) as up, world.client() as client:
        await up.until_logged("hello from a job")
        [before] = await client.workers()
        await client.drain(before.worker)
        await up.until_logged("worker ended; restarting")

        async def another_lives() -> bool:
            return any(worker.worker != before.worker for worker in await client.workers())

        await until(another_lives, within=20, what="another worker lives")
        up.process.send_signal(signal.SIGINT)
        assert await up.end() == 0, up.log


@pytest.mark.thorough
async def test_a_worker_that_dies_is_an_error(place, database_url, nats_url):
    place.app.write_text(IMPORTS_ONCE)
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    async with place.up("--json", **urls) as up:
        assert await up.end() == 2
        assert await up.process.stdout.read() == b""
    *_, cause, consequence = up.log.splitlines()
    assert cause.startswith("headway: cannot import the app")
    assert "FileExistsError" in cause
    assert consequence.startswith("headway: the worker exited unexpectedly with code 2")
    assert "Traceback" not in up.log


@pytest.mark.thorough
async def test_a_server_that_dies_is_an_error(used_place):
    async with used_place.up() as up:
        await up.until_logged("hello from a job")
        server = next(
            line
            for line in used_place.left_behind()
            if "nats-server -c" in line and "supervisor" not in line
        )
        os.kill(int(server.split()[0]), signal.SIGKILL)
        assert await up.end(within=30) == 2
    assert "headway: NATS exited unexpectedly with code -9: see " in up.log.splitlines()[-1]


@pytest.mark.thorough
async def test_a_worker_command_is_restarted_and_stopped_with_its_children(
    place, database_url, nats_url
):
    other = place.folder / "other.py"
    other.write_text(OTHER)
    urls = {"HEADWAY_DATABASE_URL": database_url, "HEADWAY_NATS_URL": nats_url}
    command = f"{sys.executable} {other}"
    async with place.up("--worker-command", command, **urls) as up:
        await up.until_logged(f"other worker on {nats_url}")
        [entry] = [line for line in up.log.splitlines() if "worker ended" in line]
        assert all(words in entry for words in (command, "exit code 3", "0.5")), entry
        await up.until(lambda: any(line.count("child") for line in place.left_behind()), "a child")
        up.process.send_signal(signal.SIGINT)
        assert await up.end(within=15) == 0, up.log
        assert place.left_behind() == []
    assert "other worker drains" in up.log


FOREIGN = """
app: foreign
jobs:
  echo: {input_schema: {type: string}}
manifests:
  echo-often: {job: echo, every: {seconds: 1}, input: hello}
"""


@pytest.mark.thorough
async def test_an_app_in_yaml_needs_a_worker_command(place, world):
    place.app = place.folder / "foreign.yaml"
    place.app.write_text(FOREIGN)
    urls = {"HEADWAY_DATABASE_URL": world.database_url, "HEADWAY_NATS_URL": world.nats_url}
    async with place.up(**urls) as up:
        assert await up.end(within=30) == 2
    assert "name the program that does, as in --worker-command" in up.log
    command = f"{sys.executable} {Path(__file__).parent / 'bare_worker.py'} echo bare-1"
    async with place.up("--json", "--worker-command", command, **urls) as up:
        await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
        up.process.send_signal(signal.SIGINT)
        assert await up.end(within=60) == 0, up.log
        report = await up.report()
    assert report["runs_completed"] >= 1, report
    assert place.left_behind() == []
