"""Prunes at the dispatcher: only history and a tombstone stay, and a confirmation is sent."""

import asyncio
from uuid import UUID, uuid4

import pytest
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.lifecycle import RunCompleted
from headway_contract.settled import PruneConfirmed, WorkSettled
from headway_contract.work import ManifestPruned, RetryPolicy, WorkCancelRequested
from headway_dispatcher.intake import prune
from headway_jetstream_kit.publish import publish
from support.invariants import check_invariants
from support.work_events import WorkPublisher, app_with
from support.world import until

MANIFEST, OTHER = UUID(int=0xA), UUID(int=0xB)


class Scheduler(WorkPublisher):
    """Publishes work of manifests and their prunes, and waits for the confirmations."""

    async def queue(self, manifest: UUID = MANIFEST, **fields) -> UUID:
        name = f"m-{manifest.int:x}"
        return await super().queue(manifest_id=manifest, manifest=name, **fields)

    async def prune(self, manifest: UUID = MANIFEST) -> None:
        await self.publish(
            ManifestPruned(
                manifest_id=manifest,
                manifest=f"m-{manifest.int:x}",
                group="ops",
                pruned_at=utc_now(),
            )
        )

    async def until_confirmed(self, times: int = 1) -> list[PruneConfirmed]:
        async def enough_confirmed():
            confirmed = await self.events(PruneConfirmed)
            return confirmed if len(confirmed) >= times else None

        return await until(enough_confirmed, within=20, what=f"{times} prune(s) confirmed")


@pytest.fixture
def scheduler(world) -> Scheduler:
    return Scheduler(world.broker)


async def left(world, manifest: UUID = MANIFEST) -> dict[str, int]:
    return {
        table: await world.value(
            f"SELECT count(*) FROM dispatcher.{table} WHERE manifest_id = $1", manifest
        )
        for table in ("work_queue", "metadata", "dead_letter")
    }


NOTHING = {"work_queue": 0, "metadata": 0, "dead_letter": 0}


async def test_a_pruned_manifest_leaves_nothing_but_history_and_its_tombstone(world, scheduler):
    async def job(ctx, given: str):
        if given == "bad":
            raise ValueError("boom")

    await world.serve(app_with(job))
    for number, given in enumerate(["good", "good", "bad"]):
        await scheduler.queue(slot=number, input=given, retry=RetryPolicy(attempts=1))
    await scheduler.queue(OTHER, input="good")
    await world.until("SELECT count(*) = 4 FROM dispatcher.work_queue WHERE state = 'settled'")
    history = await world.value("SELECT count(*) FROM dispatcher.history")
    await scheduler.prune()
    [confirmed] = await scheduler.until_confirmed()
    assert (confirmed.manifest_id, confirmed.manifest, confirmed.group) == (MANIFEST, "m-a", "ops")
    assert await left(world) == NOTHING
    assert await left(world, OTHER) == {"work_queue": 1, "metadata": 1, "dead_letter": 0}
    assert await world.value("SELECT count(*) FROM dispatcher.lease") == 1
    assert (
        await world.value(
            "SELECT count(*) FROM dispatcher.inbox WHERE lease_id NOT IN"
            " (SELECT id FROM dispatcher.lease)"
        )
        == 0
    )
    assert await world.value("SELECT count(*) FROM dispatcher.history") == history + 2
    assert await world.value(
        "SELECT array_agg(type ORDER BY id) FROM dispatcher.history WHERE work_id IS NULL"
    ) == ["headway.manifest.pruned.v1", "headway.prune.confirmed.v1"]
    assert await world.value("SELECT confirmed_at IS NOT NULL FROM dispatcher.tombstone")
    await check_invariants(world.database)


async def test_a_live_run_finishes_first_and_what_waits_is_cancelled(world, scheduler):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()
        return "done"

    await world.dispatcher(max_active=1)
    await world.worker(app_with(job))
    live = await scheduler.queue(slot=0)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    waiting = await scheduler.queue(slot=1)
    await scheduler.until_taken_in()
    await scheduler.prune()
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'cancelled'")
    await scheduler.prune()
    await scheduler.until_taken_in()
    assert await scheduler.events(PruneConfirmed) == []
    assert await left(world) == {"work_queue": 2, "metadata": 1, "dead_letter": 0}
    release.set()
    await scheduler.until_confirmed()
    outcomes = {
        settled.work: (settled.outcome, settled.reason)
        for settled in await scheduler.events(WorkSettled)
    }
    assert outcomes == {
        live: ("completed", ""),
        waiting: ("cancelled", "manifest was pruned"),
    }
    assert await left(world) == NOTHING


async def test_a_run_that_fails_after_the_prune_is_not_tried_again(world, scheduler):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()
        raise ValueError("boom")

    await world.serve(app_with(job))
    await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await scheduler.prune()
    await world.until("SELECT count(*) FROM dispatcher.tombstone")
    release.set()
    await scheduler.until_confirmed()
    [settled] = await scheduler.events(WorkSettled)
    assert (settled.outcome, settled.reason, settled.runs) == (
        "cancelled",
        "manifest was pruned",
        1,
    )
    assert await left(world) == NOTHING


async def test_work_that_arrives_after_the_tombstone_is_cancelled(world, scheduler):
    await world.dispatcher()
    await scheduler.prune()
    await scheduler.until_confirmed()
    late, cancelled = await scheduler.queue(), uuid4()
    await scheduler.queue(work=late)
    await scheduler.publish(
        WorkCancelRequested(
            work=cancelled, manifest_id=MANIFEST, group="ops", requested_at=utc_now()
        )
    )
    await scheduler.until_taken_in()
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    outcomes = [(settled.work, settled.outcome) for settled in await scheduler.events(WorkSettled)]
    assert sorted(outcomes) == sorted([(late, "cancelled"), (cancelled, "cancelled")])
    assert await left(world) == NOTHING


async def test_a_repeated_prune_is_confirmed_again(world, scheduler):
    await world.dispatcher()
    await scheduler.prune()
    await scheduler.until_confirmed()
    await scheduler.prune()
    first, second = await scheduler.until_confirmed(times=2)
    assert first == second, "the same confirmation, in a message of its own"


async def test_a_redelivered_work_queued_of_a_live_run_does_not_call_it_cancelled(world, scheduler):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()

    await world.serve(app_with(job))
    work = await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await scheduler.prune()
    await scheduler.queue(work=work)
    await scheduler.until_taken_in()
    assert await scheduler.events(WorkSettled) == []
    release.set()
    await scheduler.until_confirmed()
    assert [settled.outcome for settled in await scheduler.events(WorkSettled)] == ["completed"]


async def test_a_late_event_of_a_deleted_lease_is_kept_as_refused(world, scheduler):
    async def job(ctx): ...

    await world.serve(app_with(job))
    await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")
    row = (await world.rows("SELECT run_id, lease_id FROM dispatcher.run"))[0]
    await scheduler.prune()
    await scheduler.until_confirmed()
    late = RunCompleted(lease=row["lease_id"], token="t", nonce="n", run=row["run_id"])
    body = encode(event(late, id="late", source="worker/w", subject="x", time=utc_now()))
    await publish(world.broker, subjects.event(row["lease_id"], "w"), body)
    await world.until("SELECT count(*) FROM dispatcher.history WHERE refusal = 'unknown_lease'")
    await check_invariants(world.database)


async def test_a_large_manifest_goes_batch_by_batch(world, scheduler, monkeypatch):
    monkeypatch.setattr(prune, "BATCH", 10)
    await world.value("INSERT INTO dispatcher.group_limit (name) VALUES ('ops') RETURNING name")
    await world.value(_MANY_RUNS, MANIFEST, 95)
    transactions = []
    delete = prune._delete_some

    async def counted(connection, manifest):
        transactions.append(manifest)
        return await delete(connection, manifest)

    monkeypatch.setattr(prune, "_delete_some", counted)
    await world.dispatcher()
    await world.dispatcher()
    await scheduler.prune()
    await scheduler.until_confirmed()
    assert await left(world) == NOTHING
    assert await world.value("SELECT count(*) FROM dispatcher.lease") == 0
    assert await world.value("SELECT count(*) FROM dispatcher.inbox") == 0
    assert len(transactions) >= 10 + 9 + 9
    assert len(await scheduler.events(PruneConfirmed)) == 1


async def test_work_that_arrives_during_the_prune_of_its_manifest_never_stays(world, scheduler):
    """Dispatchers share the stream, so work and prune may arrive in any order or at once."""
    for _ in range(3):
        await world.dispatcher()
    manifests = [uuid4() for _ in range(20)]
    await asyncio.gather(
        *(scheduler.queue(manifest) for manifest in manifests),
        *(scheduler.prune(manifest) for manifest in manifests),
    )
    await scheduler.until_confirmed(times=20)
    await scheduler.until_taken_in()
    assert await world.value("SELECT count(*) FROM dispatcher.work_queue") == 0


_MANY_RUNS = """
WITH work AS (
    INSERT INTO dispatcher.work_queue
        (id, round, manifest_id, manifest, slot, group_name, job, cause, queued_at, priority,
         rank, not_before, terms, state,
         run_id, outcome, settled_at, received_at)
    SELECT gen_random_uuid(), 1, $1, 'm-a', 0, 'ops', 'job', 'test', now(), 0, now(), now(), '{}',
           'settled', gen_random_uuid(), 'completed', now(), now()
    FROM generate_series(1, $2)
    RETURNING id, run_id
), lease AS (
    INSERT INTO dispatcher.lease (id, token, job, created_at, ended_at)
    SELECT run_id, '', 'job', now(), now() FROM work
), inbox AS (
    INSERT INTO dispatcher.inbox SELECT run_id, 'event', now() FROM work
), letter AS (
    INSERT INTO dispatcher.dead_letter
        (id, work_id, round, manifest_id, group_name, job, reason, failure, attempts, state,
         created_at)
    SELECT run_id, id, 1, $1, 'ops', 'job', 'r', '{}', 1, 'awaiting', now() FROM work
)
INSERT INTO dispatcher.metadata
    (run_id, work_id, lease_id, manifest_id, group_name, job, round, attempt, state, created_at,
     finished_at, max_run_seconds)
SELECT run_id, id, run_id, $1, 'ops', 'job', 1, 1, 'completed', now(), now(), 60
FROM work
"""
