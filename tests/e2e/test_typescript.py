"""A worker in TypeScript beside Python: the same protocol, traces and answers."""

import subprocess
from typing import Any

import pytest
from headway import App, Client, RequestFailed, manual
from headway_contract import subjects
from headway_contract.work import RetryPolicy
from headway_dispatcher.provisioning import provision_by
from support import typescript
from support.collector import Collector
from support.drawing import Drawn
from support.invariants import check_invariants
from support.processes import TESTS
from support.tiers import first_in_each_tier
from support.typescript import HEARD, start
from support.work_events import WorkPublisher
from support.world import STREAMS, until

pytestmark = pytest.mark.skipif(
    typescript.missing() is not None, reason=f"TypeScript: {typescript.missing()}"
)

# Spans are ordered by name, because two processes have two clocks.
TREE_IN_TYPESCRIPT = """\
scheduler decide
  dispatcher admit
    dispatcher publish headway.run.ts-echo
    worker claim mine
      dispatcher project
    worker run 1
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.g
          scheduler settle completed
  scheduler publish headway.work.g
"""
TREE_IN_PYTHON = TREE_IN_TYPESCRIPT.replace("ts-echo", "after").replace(
    "decide", "decide ⇠ scheduler tick ⇠ scheduler settle completed"
)


def by_name(span: Drawn) -> str:
    return span.label


COMPLETED = "SELECT count(*) FROM dispatcher.run WHERE state = 'completed' AND job = $1"


@pytest.fixture(scope="session", autouse=True)
def built():
    typescript.build()


RUNS = "SELECT * FROM dispatcher.run WHERE job = $1 ORDER BY created_at"
SETTLED = "SELECT outcome FROM dispatcher.work_queue WHERE id = $1 AND state = 'settled'"
RUNNING = "SELECT count(*) FROM dispatcher.run WHERE job = $1 AND state = 'in_progress'"


@pytest.fixture
def publisher(world) -> WorkPublisher:
    return WorkPublisher(world.broker)


async def the_run(world, job: str):
    [row] = await world.rows(RUNS, job)
    return row


async def test_a_manifest_runs_in_typescript_and_its_dependent_in_python(world, processes):
    app = App("test")

    @app.job("ts-echo", group="ops", elsewhere=True)
    def echo(ctx, given: Any) -> None:
        raise AssertionError("this body runs in TypeScript")

    @app.job("mail", group="ops")
    async def mail(ctx):
        return "sent"

    app.schedule("report", job="ts-echo", when=manual(), input={"id": 7}).then("mail", job=mail)
    await start(world, processes)
    # This worker serves only the job that has a body in Python.
    await world.worker(app)
    await world.scheduler(app)
    async with world.client() as headway:
        await headway.trigger("report")
    await world.until(COMPLETED, "mail")
    await world.until_settled(at_least=2)
    echoed, mailed = await the_run(world, "ts-echo"), await the_run(world, "mail")
    assert echoed["worker"] == "typescript-1"
    assert echoed["output"] == {
        "echo": {"id": 7},
        "by": "typescript-1",
        "manifest": "report",
        "attempt": 1,
    }
    assert mailed["worker"] != "typescript-1"
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_one_trace_goes_through_both_languages(processes, broker, world):
    await provision_by(broker, STREAMS)
    collector = Collector()
    processes.export_to(await collector.start())
    app = str(TESTS / "support" / "traced_typescript_app.py")
    try:
        await processes.node(str(typescript.WORKER_UNDER_TEST))
        for command in ("dispatcher", "worker", "scheduler"):
            await processes.headway(command, HEADWAY_APP=app)
        async with world.client() as headway:
            await until(lambda: triggered(headway), within=30, what="a scheduler answers")
        top = await collector.seen(TREE_IN_TYPESCRIPT, order=by_name, manifest="parent")
        child = await collector.seen(TREE_IN_PYTHON, order=by_name, manifest="child")
    finally:
        collector.stop()
    in_trace = [span for span in collector.spans if span.trace == top.trace]
    [ran] = [span for span in in_trace if span.name == "run"]
    assert ran.attributes["job"] == "ts-echo"
    assert child.links[-1][0] == top.trace, "the dependent is linked to the run in TypeScript"


async def triggered(headway: Client) -> bool:
    try:
        await headway.trigger("parent")
    except RequestFailed:
        return False
    return True


async def test_failures_are_retried_and_fatal_failures_are_not(world, processes, publisher):
    await start(world, processes)
    once, never = await publisher.queue("ts-fail-once"), await publisher.queue("ts-fatal")
    big = await publisher.queue("ts-big")
    assert await world.until(SETTLED, once) == "completed"
    assert await world.until(SETTLED, never) == "dead_lettered"
    assert await world.until(SETTLED, big) == "dead_lettered"
    first, second = await world.rows(RUNS, "ts-fail-once")
    assert (first["state"], second["state"]) == ("failed", "completed")
    assert first["failure"]["kind"] == "RangeError"
    assert first["failure"]["message"] == "out of range"
    assert "worker_under_test" in first["failure"]["stack"]
    assert (await the_run(world, "ts-fatal"))["failure"]["kind"] == "Fatal"
    assert (await the_run(world, "ts-big"))["failure"]["kind"] == "output_too_large"
    await check_invariants(world.database)


@pytest.mark.parametrize("job", first_in_each_tier(["ts-slow", "ts-stubborn"]))
async def test_a_cancel_stops_a_body_or_stops_waiting_for_it(world, processes, publisher, job):
    await start(world, processes)
    work = await publisher.queue(job, cancel_grace_seconds=1)
    await world.until(RUNNING, job)
    await publisher.cancel(work, "not needed")
    assert await world.until(SETTLED, work) == "cancelled"
    run = await the_run(world, job)
    assert (run["state"], run["cancel_reason"]) == ("cancelled", "not needed")
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_cancelled_body_has_no_longer_than_the_drain(world, processes, publisher):
    program = await start(world, processes, DRAIN_SECONDS="0.1")
    work = await publisher.queue("ts-stubborn", cancel_grace_seconds=60)
    await world.until(RUNNING, "ts-stubborn")
    await publisher.cancel(work, "not needed")

    async def stop_requested() -> bool:
        return "asked to stop" in processes.logs()

    await until(stop_requested, within=20, what="it was asked to stop")
    assert await program.stop(within=10) == 0
    assert await world.until(SETTLED, work) == "cancelled"
    assert (await the_run(world, "ts-stubborn"))["state"] == "cancelled"
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_progress_and_log_lines_of_a_run_are_stored(world, processes, publisher):
    await start(world, processes)
    work = await publisher.queue("ts-talks")
    assert await world.until(SETTLED, work) == "completed"
    run = await the_run(world, "ts-talks")
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.run_log WHERE run_id = $1", run["run_id"]
    )
    async with world.client() as headway:
        details = await headway.run(run["run_id"])
    assert (details.percent, details.message) == (100, "half way")
    assert [(line.level, line.message, line.fields) for line in details.log] == [
        ("info", "fetched", {"rows": 7}),
        ("error", "odd", {}),
    ]


@pytest.mark.thorough
async def test_a_timeout_ends_a_run(world, processes, publisher):
    await start(world, processes)
    work = await publisher.queue("ts-slow", timeout_seconds=0.3, retry=RetryPolicy(attempts=1))
    assert await world.until(SETTLED, work) == "dead_lettered"
    assert (await the_run(world, "ts-slow"))["failure"]["kind"] == "timed_out"


@pytest.mark.thorough
async def test_a_stopped_worker_hands_its_run_back_uncounted(world, processes, publisher):
    program = await start(world, processes, DRAIN_SECONDS="0.2")
    work = await publisher.queue("ts-slow", retry=RetryPolicy(attempts=1))
    await world.until(RUNNING, "ts-slow")
    assert await program.stop(within=10) == 0
    await world.until("SELECT state = 'waiting' FROM dispatcher.work_queue WHERE id = $1", work)
    assert (await the_run(world, "ts-slow"))["failure"]["kind"] == "worker_stopped"
    assert await world.value("SELECT attempts FROM dispatcher.work_queue WHERE id = $1", work) == 0
    assert await world.value(HEARD) == 0
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_worker_that_is_killed_loses_its_run_to_another(world, processes, publisher):
    program = await start(world, processes)
    await publisher.queue("ts-slow")
    await world.until(RUNNING, "ts-slow")
    await processes.kill(program)
    await processes.node(str(typescript.WORKER_UNDER_TEST), WORKER_NAME="typescript-2")
    await world.until(
        "SELECT count(*) FROM dispatcher.run WHERE worker = 'typescript-2'"
        " AND state = 'in_progress'"
    )
    first, _ = await world.rows(RUNS, "ts-slow")
    assert first["failure"]["kind"] == "orphaned"
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_lease_is_republished_after_its_stream_was_purged(world, processes, publisher):
    await start(world, processes)
    work = await publisher.queue("ts-slow", cancel_grace_seconds=5)
    await world.until(RUNNING, "ts-slow")
    await world.broker.client.jetstream().purge_stream(subjects.EVENTS_STREAM)
    await publisher.cancel(work)
    assert await world.until(SETTLED, work) == "cancelled"
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_many_runs_at_once(world, processes, publisher):
    await start(world, processes, WORKER_SLOTS="20")
    for number in range(200):
        await publisher.queue("ts-echo", input=number)
    await world.until(f"SELECT ({COMPLETED}) = 200", "ts-echo", within=60)
    rows = await world.rows(
        "SELECT input, output FROM dispatcher.run JOIN dispatcher.work_queue ON id = work_id"
    )
    assert all(row["output"]["echo"] == row["input"] for row in rows)
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_the_demo_runs_in_both_languages(world, processes):
    data = str(processes.folder / "data")
    program = await processes.start(str(typescript.DEMO), "--with-typescript", "--data", data)
    await world.until(COMPLETED, "greet-typescript", within=30)
    await world.until(COMPLETED, "count-greetings", within=30)
    assert await program.stop(within=20) == 0
    by_job = await world.rows("SELECT DISTINCT job, worker FROM dispatcher.run")
    workers = {row["job"]: row["worker"] for row in by_job}
    assert workers["greet-typescript"].startswith("typescript-")
    assert workers["count-greetings"].startswith("demo-")
    assert await world.value(RUNNING, "greet-typescript") == 0
    await check_invariants(world.database)


@pytest.mark.thorough
def test_the_tests_of_the_typescript_package():
    done = subprocess.run(
        ["npm", "test"], cwd=typescript.PACKAGE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 31" in done.stdout
