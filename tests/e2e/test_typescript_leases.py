"""Leases of a worker in TypeScript: batches, activations, and lost streams."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from headway import App, manual
from headway_clock import utc_now
from headway_contract import decode, encode, event, subjects
from headway_contract.lifecycle import LeaseClaimed, RunCompleted, RunsCompleted
from headway_contract.work import RetryPolicy
from headway_dispatcher import events
from headway_dispatcher.settings import DispatcherSettings
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish
from support import typescript
from support.batches import order, queue_many
from support.invariants import check_invariants
from support.typescript import start
from support.work_events import cancel, queue, until_given_back
from support.world import until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        typescript.missing() is not None, reason=f"TypeScript: {typescript.missing()}"
    ),
]

ALL_SETTLED = "SELECT bool_and(state = 'settled') FROM dispatcher.work_queue"
RUNS = """
    SELECT work_queue.input, metadata.state, metadata.failure ->> 'kind' AS kind,
           work_queue.attempts
    FROM dispatcher.run AS metadata JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
    ORDER BY work_queue.input, metadata.created_at
"""


@pytest.fixture(scope="session", autouse=True)
def built():
    typescript.build()


def begun(folder: Path) -> list[int]:
    """Return the runs whose body has begun, in order."""
    file = folder / "begun"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def until_begun(folder: Path, number: int) -> None:
    async def has_begun() -> bool:
        return number in begun(folder)

    await until(has_begun, within=20, what=f"run {number} has begun")


async def runs(world) -> list[tuple]:
    return [tuple(row) for row in await world.rows(RUNS)]


async def test_runs_of_a_lease_go_one_after_the_other_and_share_messages(world, processes):
    await start(world, processes)
    made = await order(world, await queue_many(world, 30))
    await world.until(ALL_SETTLED)
    assert begun(processes.folder) == list(range(30))
    assert await runs(world) == [(number, "completed", None, 1) for number in range(30)]
    unstarted = "SELECT count(*) FROM dispatcher.run WHERE started_at IS NULL"
    assert await world.value(unstarted) == 0, "each completion reports its start"
    outputs = await world.rows("SELECT run_id, output FROM dispatcher.run")
    assert {row["run_id"]: row["output"] for row in outputs} == {
        ordered.run: number for number, ordered in enumerate(made.runs)
    }
    published = await world.rows(
        "SELECT type, data FROM dispatcher.history WHERE source = 'worker/typescript-1' ORDER BY id"
    )
    assert {row["type"] for row in published} == {LeaseClaimed.type, RunsCompleted.type}
    packed = [run["run"] for row in published for run in row["data"].get("runs", [])]
    assert packed == [str(ordered.run) for ordered in made.runs]
    info = await world.broker.client.jetstream().stream_info(subjects.EVENTS_STREAM)
    assert info.state.last_seq <= 5, "the claim, and few messages with the completions"
    await check_invariants(world.database)


RETRIED = RetryPolicy(attempts=3)
# Work that waits for one moment, so that the gate sees all of it at once.
SOON = timedelta(seconds=0.5)


async def test_the_gate_packs_short_runs_and_their_completions_arrive(world, processes):
    await start(world, processes, WORKER_SLOTS="1")
    for number in range(30):
        await queue(world, input=number)  # with a single attempt, so in a lease of its own
    await world.until(ALL_SETTLED)
    await world.until("SELECT seconds < 0.02 FROM dispatcher.job_duration WHERE job = 'job'")
    soon = utc_now() + SOON
    for number in range(30, 60):
        await queue(world, input=number, retry=RETRIED, not_before=soon)
    await world.until("SELECT count(*) = 60 FROM dispatcher.work_queue WHERE state = 'settled'")
    assert await runs(world) == [(number, "completed", None, 1) for number in range(60)]
    leases = await world.value("SELECT count(DISTINCT lease_id) FROM dispatcher.run")
    assert leases <= 45, "30 of one run each, and few of the others"
    packed = await world.value(
        "SELECT sum(jsonb_array_length(data -> 'runs')) FROM dispatcher.history WHERE type = $1",
        RunsCompleted.type,
    )
    single = await world.value(
        "SELECT count(*) FROM dispatcher.history WHERE type = $1", RunCompleted.type
    )
    assert packed >= 20
    assert packed + single == 60
    await check_invariants(world.database)


async def test_runs_behind_a_slow_one_are_handed_back_and_run_elsewhere(
    world, processes, monkeypatch
):
    """The slow body goes on; the others complete before it, in leases of their own."""
    monkeypatch.setattr(events, "HAND_BACK_SECONDS", 0.3)
    await start(world, processes, WORKER_SLOTS="2", HOLD="0")
    async with world.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO dispatcher.job_duration (job, seconds, measured_at)"
            " VALUES ('job', 0.001, now())"
        )
    soon = utc_now() + SOON
    slow, *_ = [
        await queue(world, input=number, retry=RETRIED, not_before=soon) for number in range(8)
    ]
    await world.until("SELECT count(*) = 7 FROM dispatcher.work_queue WHERE state = 'settled'")
    in_progress = "SELECT work_id FROM dispatcher.run WHERE state = 'in_progress'"
    assert await world.value(in_progress) == slow
    handed_back = await world.rows(
        "SELECT lease_id, started_at FROM dispatcher.run WHERE failure ->> 'kind' = 'handed_back'"
    )
    of_slow = await world.value("SELECT lease_id FROM dispatcher.run WHERE work_id = $1", slow)
    assert {tuple(row) for row in handed_back} == {(of_slow, None)}
    again = await world.rows("SELECT attempts, outcome FROM dispatcher.work_queue WHERE runs = 2")
    assert [tuple(row) for row in again] == [(1, "completed")] * len(handed_back)
    await cancel(world, slow)
    await world.until(ALL_SETTLED)
    assert sorted(begun(processes.folder)) == list(range(8)), "each body began once"
    await check_invariants(world.database)


async def test_a_refused_message_before_the_claim_does_not_block_a_lease(world, processes):
    await start(world, processes)
    lease = uuid4()
    forged = LeaseClaimed(lease=lease, token="guess", nonce="x")
    body = encode(event(forged, id=uuid4(), source="test", subject="x", time=utc_now()))
    answer = await publish(world.broker, subjects.event(lease, "mallory"), body)
    assert isinstance(answer, Stored)
    await order(world, await queue_many(world, 1), lease=lease)
    await world.until(ALL_SETTLED)
    assert await runs(world) == [(0, "completed", None, 1)]
    await check_invariants(world.database)


async def test_a_cancelled_run_leaves_the_others_running(world, processes):
    """Cancel a run in progress and a run that has not begun."""
    await start(world, processes, HOLD="1")
    works = await queue_many(world, 4)
    await order(world, works)
    await until_begun(processes.folder, 1)
    await cancel(world, works[2])
    await world.until(
        "SELECT count(*) FROM dispatcher.work_queue WHERE cancel_requested_at IS NOT NULL"
    )
    await cancel(world, works[1])
    await world.until(ALL_SETTLED)
    states = [(number, state) for number, state, *_ in await runs(world)]
    assert states == [(0, "completed"), (1, "cancelled"), (2, "cancelled"), (3, "completed")]
    assert begun(processes.folder) == [0, 1, 3]
    await check_invariants(world.database)


async def test_a_drain_hands_back_runs_that_have_not_begun_or_do_not_end(world, processes):
    program = await start(world, processes, HOLD="1", DRAIN_SECONDS="1.5")
    await order(world, await queue_many(world, 3))
    await until_begun(processes.folder, 1)
    stopping = asyncio.create_task(program.stop(within=10))
    # Until then the gate may order the returned work from the same worker.
    await world.until("SELECT bool_or(draining) FROM dispatcher.worker")
    assert await stopping == 0
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'waiting'")
    assert await runs(world) == [
        (0, "completed", None, 1),
        (1, "failed", "worker_stopped", 0),
        (2, "failed", "worker_stopped", 0),
    ]
    assert begun(processes.folder) == [0, 1]
    await check_invariants(world.database)


@pytest.mark.parametrize("lost", [True, False])
async def test_an_order_of_a_finished_lease_is_answered_and_not_run_again(world, processes, lost):
    """After a loss the worker republishes its events; otherwise it only acknowledges."""
    dispatcher = await world.dispatcher()
    await processes.node(str(typescript.WORKER_UNDER_TEST))
    await world.until(typescript.HEARD)
    await dispatcher.end_pass("projector")
    made = await order(world, await queue_many(world, 1))
    jetstream = world.broker.client.jetstream()

    async def stored() -> int:
        return (await jetstream.stream_info(subjects.EVENTS_STREAM)).state.messages

    async def both_stored() -> bool:
        return await stored() == 2

    await until(both_stored, within=20, what="the claim and the outcome are stored")
    if lost:
        await jetstream.purge_stream(subjects.EVENTS_STREAM)
    again = encode(event(made, id=made.lease, source="test", subject="x", time=utc_now()))

    async def acknowledged() -> bool:
        orders = await jetstream.stream_info(subjects.RUNS_STREAM)
        return orders.state.messages == 0

    async def answered() -> bool:
        """Send the order again; it counts only after the worker knows that its outcome is stored."""
        answer = await publish(world.broker, subjects.order("job", made.lease), again)
        assert isinstance(answer, Stored)
        await until(acknowledged, within=20, what="the order is acknowledged")
        return await stored() == (1 if lost else 2)

    await until(answered, within=20, what="all events are republished in one message")
    await world.dispatcher()
    await world.until(ALL_SETTLED)
    assert begun(processes.folder) == [0]
    assert await runs(world) == [(0, "completed", None, 1)]
    await check_invariants(world.database)


@pytest.mark.parametrize("policy", ["stop", "continue"])
async def test_when_contact_is_lost_the_job_decides(world, processes, policy):
    await world.dispatcher(orphan_timeout_seconds=1.0)
    await processes.node(str(typescript.WORKER_UNDER_TEST))
    await world.until(typescript.HEARD)
    seconds = 60 if policy == "stop" else 2.5
    await queue(world, job="ts-waits-once", on_lost_contact=policy, input=seconds)
    await until_logged(processes.folder, "begun")
    for service in world.services:
        await service.stop()
    world.services.clear()
    line = "stopped: lost_contact" if policy == "stop" else "waited"
    await until_logged(processes.folder, line)
    await world.dispatcher(orphan_timeout_seconds=60)
    if policy == "stop":
        kind = "SELECT failure ->> 'kind' FROM dispatcher.run WHERE state = 'failed'"
        assert await world.until(kind) == "lost_contact"
    await world.until(ALL_SETTLED)
    rows = await world.rows("SELECT attempts, runs, outcome FROM dispatcher.work_queue")
    assert [tuple(row) for row in rows] == [(1, 2 if policy == "stop" else 1, "completed")]
    await check_invariants(world.database)


async def test_who_has_lost_contact_claims_nothing_that_would_have_to_stop(world, processes):
    await world.dispatcher(orphan_timeout_seconds=1.0)
    await processes.node(str(typescript.WORKER_UNDER_TEST), WORKER_SLOTS="1")
    await world.until(typescript.HEARD)
    for _ in range(2):
        await queue(world, job="ts-waits-once", input=60)
    await until_logged(processes.folder, "begun")
    await world.until("SELECT count(*) = 2 FROM dispatcher.run")
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    for service in world.services:
        await service.stop()
    world.services.clear()
    await until_logged(processes.folder, "stopped: lost_contact")
    await until_given_back(world, "ts-waits-once")
    await world.dispatcher(orphan_timeout_seconds=60)
    await world.until(ALL_SETTLED)
    rows = await world.rows("SELECT attempts, outcome FROM dispatcher.work_queue")
    assert [tuple(row) for row in rows] == [(1, "completed")] * 2
    await check_invariants(world.database)


async def until_logged(folder: Path, words: str) -> None:
    """Wait until a log of the processes contains these words."""

    def is_logged() -> bool:
        return any(words in log.read_text() for log in folder.glob("*.log"))

    async def logged() -> bool:
        return is_logged()

    await until(logged, within=20, what=words)


async def test_only_the_latest_renewal_of_a_lease_is_republished(world, processes, monkeypatch):
    monkeypatch.setattr(DispatcherSettings, "renew_seconds", property(lambda _: 0.2))
    await start(world, processes)
    work = await queue(world, job="ts-slow", cancel_grace_seconds=5)
    renewals = "SELECT count(*) FROM dispatcher.history WHERE type = 'headway.lease.renewed.v1'"
    await world.until(f"SELECT ({renewals}) >= 3")
    jetstream = world.broker.client.jetstream()
    await jetstream.purge_stream(subjects.EVENTS_STREAM)
    await cancel(world, work)
    await world.until(ALL_SETTLED)
    first = await jetstream.stream_info(subjects.EVENTS_STREAM)
    message = await jetstream.get_msg(subjects.EVENTS_STREAM, first.state.first_seq)
    types = [event.type.split(".", 1)[1] for event in decode(message.data)]
    assert types[:2] == ["lease.claimed.v1", "run.started.v1"]
    assert types.count("lease.renewed.v1") == 1
    await check_invariants(world.database)


def activating_app(job: str) -> App:
    app = App("test")

    @app.job(job, group="ops", elsewhere=True)
    def activates(ctx):
        raise AssertionError("this body runs in TypeScript")

    @app.job("note", group="ops")
    async def note(ctx, given: Any = None):
        return given

    parent = app.schedule("parent", job=job, when=manual())
    parent.include("mail", job=note, dormant=True)
    parent.include("archive", job=note, dormant=True)
    return app


async def test_a_body_wakes_dormant_dependents(world, processes):
    app = activating_app("ts-activates")
    await start(world, processes)
    await world.worker(app)
    await world.scheduler(app)
    async with world.client() as headway:
        await headway.trigger("parent")
    await world.until_settled(at_least=5)
    activations = await world.value(
        "SELECT activations FROM dispatcher.run WHERE job = 'ts-activates'"
    )
    assert sorted((item["manifest"], item["key"], str(item["input"])) for item in activations) == [
        ("archive", "", "None"),
        ("mail", "", "{'day': 'monday'}"),
        ("mail", "1", "1"),
        ("mail", "mine", "unawaited"),
    ]
    noted = await world.rows("SELECT output FROM dispatcher.run WHERE job = 'note'")
    assert sorted(str(row["output"]) for row in noted) == [
        *("1", "None", "unawaited", "{'day': 'monday'}"),
    ]
    await check_invariants(world.database)


async def test_a_refused_activation_that_is_not_awaited_fails_the_run(world, processes):
    app = activating_app("ts-activates-carelessly")
    await start(world, processes)
    await world.scheduler(app)
    async with world.client() as headway:
        await headway.trigger("parent")
    failed = "SELECT count(*) FROM dispatcher.run WHERE state = 'failed'"
    await world.until(failed)
    [failure] = await world.rows("SELECT failure FROM dispatcher.run ORDER BY created_at LIMIT 1")
    assert failure["failure"]["kind"] == "ActivationRefused"
    assert failure["failure"]["kinds"] == ["Error"]
    assert "nobody" in failure["failure"]["message"]
