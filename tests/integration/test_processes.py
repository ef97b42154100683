"""Job bodies in child processes: typed, stopped reliably, and isolated."""

import asyncio
import os
import signal
from pathlib import Path
from unittest.mock import AsyncMock, Mock
from uuid import uuid4

import msgspec
import pytest
from headway.define.jobs import Job
from headway.worker.fork_server import BodyFailed, BodyProcess, ForkServer, function_path
from headway.worker.pipe_frames import Begin, Returned, encode_frame, from_child
from headway_contract import subjects
from headway_contract.manifests import ActivationAnswer
from headway_contract.orders import OrderedRun
from support.invariants import check_invariants
from support.process_jobs import app, decorated, multiply
from support.tiers import first_in_each_tier
from support.work_events import cancel, queue, until_run
from support.world import until

pytestmark = pytest.mark.thorough


@pytest.fixture
async def worker(world):
    await world.dispatcher()
    return await world.worker(app, drain_seconds=0.2)


@pytest.fixture
async def fork_server():
    made = ForkServer(list(app.jobs.values()))
    await made.start()
    yield made
    await made.stop()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until_gone(*pids: int) -> None:
    async def gone():
        return not any(alive(pid) for pid in pids)

    await until(gone, within=10, what=f"processes {pids} have ended")


async def reported_pids(world) -> list[int]:
    """Return the process ids that a body reported in its progress."""
    message = await world.until("SELECT progress ->> 'message' FROM dispatcher.run_report")
    return [int(pid) for pid in message.split()]


@pytest.mark.parametrize("job", ["multiply", "multiply-async"])
async def test_inputs_and_outputs_are_typed_as_elsewhere(world, worker, job):
    await queue(world, job=job, input={"left": 6, "right": 7})
    row = await until_run(world, "completed")
    if job == "multiply":
        assert row["output"]["product"] == 42
        assert row["output"]["pid"] != os.getpid()
    else:
        assert row["output"] == 42
    await check_invariants(world.database)


async def test_an_input_that_does_not_fit_is_reported_as_such(world, worker):
    await queue(world, job="multiply", input={"left": "six"})
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "invalid_input"


@pytest.mark.parametrize(
    ("how", "kind", "text", "retryable"),
    [
        ("segfault", "process_died", "signal 11 (SIGSEGV)", True),
        ("kill", "process_died", "signal 9 (SIGKILL)", True),
        ("exit", "process_died", "exited with code 7", True),
        ("sys-exit", "RuntimeError", "SystemExit(3)", True),
        ("fatal", "Fatal", "no use", False),
        ("error", "ConnectionResetError", "gone", True),
        ("large", "output_too_large", "300002 bytes", False),
    ],
)
async def test_however_a_body_ends_its_worker_lives_on(world, worker, how, kind, text, retryable):
    await queue(world, job="die", input=how)
    row = await until_run(world, "failed")
    failure = row["failure"]
    assert (failure["kind"], failure["retryable"]) == (kind, retryable)
    assert text in failure["message"]
    if how == "error":
        assert failure["kinds"] == ["ConnectionError", "OSError", "Exception"]
        assert "raise ConnectionResetError" in failure["stack"]
    await queue(world, job="multiply", input={"left": 1, "right": 1})
    await until_run(world, "completed")
    await check_invariants(world.database)


@pytest.mark.parametrize("job", first_in_each_tier(["deaf", "busy", "deaf-async"]))
async def test_a_cancel_is_heard_and_enforced_after_the_grace(world, worker, job):
    work = await queue(world, job=job, cancel_grace_seconds=30 if job == "busy" else 0.3)
    [pid] = await reported_pids(world)
    await cancel(world, work, "enough")
    row = await until_run(world, "cancelled", within=30)
    assert row["cancel_reason"] == "enough"
    await until_gone(pid)
    await check_invariants(world.database)


async def test_a_timeout_ends_the_process(world, worker):
    await queue(world, job="deaf", timeout_seconds=1.5, cancel_grace_seconds=0.2)
    [pid] = await reported_pids(world)
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "timed_out"
    await until_gone(pid)


async def test_child_processes_of_a_body_end_with_it(world, worker):
    work = await queue(world, job="parent", cancel_grace_seconds=0.2)
    pids = await reported_pids(world)
    assert len(pids) == 2
    await cancel(world, work)
    await until_run(world, "cancelled")
    await until_gone(*pids)


async def test_a_death_is_noticed_although_what_the_body_has_forked_lives_on(world, worker):
    await queue(world, job="abandon")
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "process_died"
    assert "signal 9 (SIGKILL)" in row["failure"]["message"]
    [pid] = await reported_pids(world)
    await until_gone(pid)
    progress = await world.value("SELECT progress ->> 'percent' FROM dispatcher.run_report")
    assert float(progress) == 12.5


async def test_a_body_may_close_its_streams(world, worker):
    await queue(world, job="closing")
    assert (await until_run(world, "completed"))["output"] == "closed"


async def test_a_body_is_found_although_its_decorator_is_of_another_file():
    fork_server = ForkServer([app.jobs["decorated"]])
    await fork_server.start()
    try:
        output = await asyncio.wait_for(run_alone(fork_server, decorated), 10)
    finally:
        await fork_server.stop()
    assert output == "held"


async def test_progress_and_logs_reach_the_run(world, worker):
    await queue(world, job="chatty")
    row = await until_run(world, "completed")
    await world.until("SELECT count(*) = 2 FROM dispatcher.run_log")
    lines = await world.rows("SELECT * FROM dispatcher.run_log ORDER BY number")
    assert [
        (encode_frame["level"], encode_frame["message"], encode_frame["fields"])
        for encode_frame in lines
    ] == [
        ("info", "begun", {"attempt": 1}),
        ("warning", "from a library", {"logger": "library"}),
    ]
    progress = await world.value(
        "SELECT progress FROM dispatcher.run_report WHERE run_id = $1", row["run_id"]
    )
    assert (progress["percent"], progress["message"]) == (100, "half")


async def test_a_worker_that_stops_hands_its_runs_back_and_leaves_no_process(world, worker):
    await queue(world, job="deaf", cancel_grace_seconds=30)
    [pid] = await reported_pids(world)
    await world.stop_workers()
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "worker_stopped"
    assert await world.value("SELECT attempts FROM dispatcher.work_queue") == 0
    await until_gone(pid)
    await check_invariants(world.database)


async def test_the_fork_server_is_restarted(world, worker):
    await queue(world, job="multiply", input={"left": 1, "right": 2})
    await until_run(world, "completed")
    process = worker._fork_server._process
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    await queue(world, job="multiply", input={"left": 1, "right": 2})
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'completed'")


@pytest.mark.parametrize("job", ["waker", "waker-async"])
async def test_a_body_wakes_dependents_and_hears_why_it_may_not(world, worker, job):
    async def scheduler(message):
        wanted = msgspec.json.decode(message.data)["activations"]
        problems = ["unknown: nobody"] if wanted[0]["manifest"] == "unknown" else []
        await message.respond(msgspec.json.encode(ActivationAnswer(problems=problems)))

    await world.broker.client.subscribe(subjects.ACTIVATION_QUESTION, cb=scheduler)
    common = {"job": job, "manifest": "m", "manifest_id": uuid4()}
    await queue(world, input=["one", "two"], **common)
    row = await until_run(world, "completed")
    assert (row["output"], [activation["input"] for activation in row["activations"]]) == (
        2,
        [{"from": "one"}, {"from": "two"}],
    )
    await queue(world, input=["unknown"], **{**common, "manifest_id": uuid4()})
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "ActivationRefused"
    assert row["failure"]["message"] == "unknown: nobody"


async def test_concurrent_runs_restart_the_fork_server_once(fork_server, monkeypatch):
    start = AsyncMock(wraps=fork_server.start)
    monkeypatch.setattr(fork_server, "start", start)
    os.kill(fork_server._process.pid, signal.SIGKILL)
    await fork_server._process.wait()
    given = {"input": {"left": 6, "right": 7}}
    outputs = await asyncio.gather(*(run_alone(fork_server, multiply, **given) for _ in range(5)))
    assert [output["product"] for output in outputs] == [42] * 5
    assert start.await_count == 1


async def test_a_process_that_is_ended_before_its_first_message_ends(fork_server):
    child = BodyProcess(fork_server, app.jobs["deaf"], ordered(), Mock(), Mock())
    running = asyncio.create_task(child.run())
    child.kill()
    with pytest.raises(BodyFailed, match="SIGKILL"):
        await asyncio.wait_for(running, 10)


async def test_ended_processes_leave_no_open_files(fork_server):
    def open_files() -> int:
        return len(list(Path(f"/proc/{fork_server._process.pid}/fd").iterdir()))

    before = open_files()
    await run_as_the_worker_does(fork_server, "closing")
    await run_as_the_worker_does(fork_server, "closing")

    async def closed():
        return open_files() == before

    await until(closed, within=10, what="both connections are closed")


async def run_as_the_worker_does(fork_server, job: str) -> None:
    await BodyProcess(fork_server, app.jobs[job], ordered(), Mock(), Mock()).run()


async def test_code_is_loaded_once(tmp_path):
    """A file that changes while the worker runs has no effect."""
    module = tmp_path / "changing.py"
    module.write_text("def body(ctx):\n    return 'old'\n")
    names = {"__name__": "changing"}
    exec(compile(module.read_text(), str(module), "exec"), names)
    body = names["body"]
    fork_server = ForkServer([Job(name="body", group="ops", function=body)])
    await fork_server.start()
    try:
        module.write_text("def body(ctx):\n    return 'new'\n")
        outputs = await asyncio.gather(*(run_alone(fork_server, body) for _ in range(3)))
    finally:
        await fork_server.stop()
    assert outputs == ["old"] * 3


def ordered(**fields) -> OrderedRun:
    given = {"attempt": 1, "attempts": 1, "group": "ops", "cause": "x", **fields}
    return OrderedRun(run=uuid4(), work=uuid4(), **given)


async def run_alone(fork_server, function, **fields):
    """Run a body in a child process that the test drives by hand."""
    reader, writer = await fork_server.fork()
    writer.write(
        encode_frame(Begin(function=function_path(function), job="body", ordered=ordered(**fields)))
    )
    while not isinstance(frame := from_child.decode(await reader.readline()), Returned):
        continue
    writer.close()
    return msgspec.json.decode(frame.output)
