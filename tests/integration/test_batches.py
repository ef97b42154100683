"""Leases of several runs: each run has its own outcome and does not affect the others."""

import asyncio
from collections import Counter

import pytest
from headway.worker import lease_runner, leases
from headway.worker.leases import Lease
from headway_contract import subjects
from headway_contract.work import RetryPolicy
from headway_jetstream_kit.provisioning import stream_info
from support.batches import order, queue_many
from support.bodies import Bodies
from support.invariants import check_invariants
from support.work_events import app_with, cancel

pytestmark = pytest.mark.thorough

PATIENT = RetryPolicy(attempts=3, interval_seconds=0.05)


async def states(world) -> list[tuple]:
    """Return input, state, failure kind, attempts and exclusivity of every run, by input."""
    rows = await world.rows(
        "SELECT work_queue.input, metadata.state, metadata.failure ->> 'kind' AS kind,"
        " work_queue.attempts, work_queue.exclusive_lease FROM dispatcher.run AS metadata"
        " JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id"
        " ORDER BY work_queue.input, metadata.created_at"
    )
    return [tuple(row) for row in rows]


async def until_all_settled(world) -> None:
    await world.until("SELECT bool_and(state = 'settled') FROM dispatcher.work_queue")


async def test_runs_go_one_after_the_other_and_share_messages(world):
    bodies = Bodies(fail={3})
    await world.serve(bodies.app())
    works = await queue_many(world, 30)
    await order(world, works)
    await until_all_settled(world)
    assert bodies.begun == list(range(30))
    rows = await world.rows("SELECT outcome FROM dispatcher.work_queue")
    assert Counter(row["outcome"] for row in rows) == {"completed": 29, "dead_lettered": 1}
    starts = await world.value("SELECT count(*) FROM dispatcher.run WHERE started_at IS NOT NULL")
    assert starts == 30, "each start is published"
    stored = (await stream_info(world.broker, subjects.EVENTS_STREAM))["state"]["last_seq"]
    assert stored < 30, "a message carries 2.5 events or more on average"
    await check_invariants(world.database)


async def test_a_cancelled_run_leaves_the_others_running(world):
    """Cancel a run in progress and a run that has not begun."""
    bodies = Bodies(hold={1})
    await world.serve(bodies.app())
    works = await queue_many(world, 4)
    await order(world, works)
    await bodies.until_begun(1)
    await cancel(world, works[2])
    await world.until(
        "SELECT count(*) FROM dispatcher.work_queue WHERE cancel_requested_at IS NOT NULL"
    )
    await cancel(world, works[1])
    await until_all_settled(world)
    assert [(number, state) for number, state, *_ in await states(world)] == [
        (0, "completed"),
        (1, "cancelled"),
        (2, "cancelled"),
        (3, "completed"),
    ]
    assert bodies.begun == [0, 1, 3]
    begun = await world.value("SELECT attempts FROM dispatcher.work_queue WHERE input = '2'")
    assert begun == 0, "a run that never began is not an attempt"
    await check_invariants(world.database)


async def test_a_cancel_before_the_claim_lets_the_others_be_ordered_anew(world):
    bodies = Bodies()
    await world.dispatcher()
    works = await queue_many(world, 3)
    await order(world, works)
    await cancel(world, works[1])
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'waiting'")
    info = await stream_info(world.broker, subjects.RUNS_STREAM)
    assert info["state"]["messages"] == 0, "the order is withdrawn"
    await world.worker(bodies.app())
    await until_all_settled(world)
    assert sorted(bodies.begun) == [0, 2]
    assert await states(world) == [
        (0, "failed", "recalled", 1, False),
        (0, "completed", None, 1, False),
        (1, "cancelled", None, 0, False),
        (2, "failed", "recalled", 1, False),
        (2, "completed", None, 1, False),
    ]
    await check_invariants(world.database)


async def test_a_lost_worker_costs_an_attempt_only_of_runs_that_had_begun(world):
    bodies = Bodies(hold={1})
    await world.dispatcher(heartbeat_seconds=0.5, orphan_timeout_seconds=2)
    zombie = await world.worker(bodies.app(), worker_name="zombie")
    works = await queue_many(world, 4, retry=PATIENT)
    await order(world, works)
    await bodies.until_begun(1)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")

    async def no_beat() -> None:
        return None

    zombie.heartbeats.beat = no_beat
    zombie._free = 0
    await world.until("SELECT count(*) = 3 FROM dispatcher.run WHERE state = 'failed'", within=30)
    bodies.hold.clear()
    await world.worker(bodies.app(), worker_name="healthy")
    await until_all_settled(world)
    assert await states(world) == [
        (0, "completed", None, 1, False),
        (1, "failed", "orphaned", 2, True),
        (1, "completed", None, 2, True),
        (2, "failed", "unbegun", 1, True),
        (2, "completed", None, 1, True),
        (3, "failed", "unbegun", 1, True),
        (3, "completed", None, 1, True),
    ]
    leases = await world.rows(
        "SELECT count(*) AS runs FROM dispatcher.run GROUP BY lease_id ORDER BY 1"
    )
    assert [row["runs"] for row in leases] == [1, 1, 1, 4], "each is ordered again on its own"
    bodies.release.set()
    await check_invariants(world.database)


async def test_a_run_that_does_not_end_recalls_the_others_uncounted(world, monkeypatch):
    monkeypatch.setattr(lease_runner, "monotonic", lambda: 0.0)
    bodies = Bodies(hold={0})
    await world.dispatcher(heartbeat_seconds=0.5, orphan_timeout_seconds=2)
    await world.worker(bodies.app(), drain_seconds=0.1)
    works = await queue_many(world, 3, timeout_seconds=0.1, cancel_grace_seconds=0.1)
    await order(world, works)
    await world.until("SELECT count(*) = 3 FROM dispatcher.run WHERE state = 'failed'")
    bodies.release.set()
    await until_all_settled(world)
    first = {number: kind for number, _, kind, *_ in reversed(await states(world)) if kind}
    assert first == {0: "timed_out", 1: "recalled", 2: "recalled"}
    rows = await world.rows("SELECT outcome FROM dispatcher.work_queue ORDER BY input")
    assert [row["outcome"] for row in rows] == ["dead_lettered", "completed", "completed"]
    await check_invariants(world.database)


async def test_a_worker_that_drains_hands_back_runs_that_have_not_begun(world):
    bodies = Bodies(hold={0})
    await world.serve(bodies.app(), drain_seconds=10)
    works = await queue_many(world, 3)
    await order(world, works)
    await bodies.until_begun(0)
    stopping = asyncio.create_task(world.stop_workers())
    await world.until("SELECT bool_or(draining) FROM dispatcher.worker")
    bodies.release.set()
    await stopping
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'waiting'")
    assert [(number, state, kind) for number, state, kind, *_ in await states(world)] == [
        (0, "completed", None),
        (1, "failed", "worker_stopped"),
        (2, "failed", "worker_stopped"),
    ]
    assert bodies.begun == [0]
    await world.worker(bodies.app())
    await until_all_settled(world)
    assert sorted(bodies.begun) == [0, 1, 2]
    assert await world.value("SELECT bool_and(attempts = 1) FROM dispatcher.work_queue")
    await check_invariants(world.database)


async def test_a_worker_that_drains_sends_a_heartbeat_at_once(world):
    bodies = Bodies(hold={0})
    await world.dispatcher(heartbeat_seconds=120)
    await world.worker(bodies.app(), drain_seconds=30)
    await order(world, await queue_many(world, 1))
    await bodies.until_begun(0)
    stopping = asyncio.create_task(world.stop_workers())
    await world.until("SELECT bool_or(draining) FROM dispatcher.worker")
    assert not stopping.done(), "long before its next heartbeat"
    bodies.release.set()
    await stopping
    await until_all_settled(world)


async def test_large_outputs_are_published_in_several_messages(world, monkeypatch):
    monkeypatch.setattr(leases, "LINGER_SECONDS", 3600.0)
    output = "x" * 120_000

    async def job(ctx, number: int):
        return output

    await world.serve(app_with(job))
    await order(world, await queue_many(world, 12))
    await until_all_settled(world)
    rows = await world.rows("SELECT state, length(output #>> '{}') AS size FROM dispatcher.run")
    assert [tuple(row) for row in rows] == [("completed", len(output))] * 12
    assert await world.value("SELECT count(*) FROM dispatcher.lease") == 1
    await check_invariants(world.database)


async def test_runs_that_end_during_a_publish_are_published_next(world, monkeypatch):
    publishing, may_go_on, last_begun = asyncio.Event(), asyncio.Event(), asyncio.Event()
    publish = Lease.publish

    async def slowly(self, *events):
        publishing.set()
        await may_go_on.wait()
        return await publish(self, *events)

    monkeypatch.setattr(Lease, "publish", slowly)
    # Freeze the clock, so that the runs never wait for the publish.
    monkeypatch.setattr(leases, "monotonic", lambda: 0.0)
    bodies = Bodies(hold={2})

    async def job(ctx, number: int):
        if number == 1:
            await publishing.wait()
        if number == 2:
            last_begun.set()
        return await bodies(ctx, number)

    await world.serve(app_with(job))
    await order(world, await queue_many(world, 3))
    async with asyncio.timeout(15):
        await last_begun.wait()
    may_go_on.set()
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'settled'")
    bodies.release.set()
    await until_all_settled(world)
    await check_invariants(world.database)


async def test_no_body_begins_after_the_lease_is_lost(world, monkeypatch):
    """Another worker has the lease by then and runs it."""
    begun, published = [], asyncio.Event()

    async def job(ctx, number: int):
        begun.append(number)
        await published.wait()

    async def lost(self, *events):
        self.lose()
        published.set()
        return "lost"

    monkeypatch.setattr(Lease, "publish", lost)
    await world.dispatcher(orphan_timeout_seconds=600)
    worker = await world.worker(app_with(job))
    await order(world, await queue_many(world, 2))
    async with asyncio.timeout(15):
        while worker.busy or not begun:
            await asyncio.sleep(0.01)
    assert begun == [0]


@pytest.mark.parametrize("held", [0, 2])
async def test_a_lease_is_republished_after_the_stream_was_purged(world, held):
    bodies = Bodies(hold={held})
    await world.serve(bodies.app())
    works = await queue_many(world, 4)
    await order(world, works)
    await bodies.until_begun(held)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    bodies.release.set()
    await until_all_settled(world)
    assert [(number, state) for number, state, *_ in await states(world)] == [
        (number, "completed") for number in range(4)
    ]
    assert bodies.begun == [0, 1, 2, 3]
    await check_invariants(world.database)


async def test_heartbeats_name_the_lease_and_the_run_that_runs(world):
    bodies = Bodies(hold={1})
    worker = await world.serve(bodies.app())
    works = await queue_many(world, 3)
    made = await order(world, works)
    await bodies.until_begun(1)
    beat = worker._describe()
    assert (beat.leases, beat.runs) == ([made.lease], [made.runs[1].run])
    bodies.release.set()
    await until_all_settled(world)
    assert bodies.begun == [0, 1, 2]
