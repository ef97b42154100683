"""Cancels by operators: single works, manifests and groups, and their answers."""

import asyncio
from uuid import uuid4

import msgspec
import pytest
from headway import App
from headway.client.client import RequestFailed
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import RetryPolicy, WorkQueued
from headway_contract.work_queue import (
    CancelAnswer,
    CancelOutstandingRequest,
    CancelRequest,
    CancelResult,
)
from headway_dispatcher.letters import letters
from headway_dispatcher.store import read_times
from headway_jetstream_kit.publish import publish
from headway_postgres_kit import DATABASE_CLOCK
from headway_relay import Handover
from headway_scheduler.operate import cancel
from headway_scheduler.operate.enqueue import Enqueue
from headway_scheduler.store import enqueued, works
from msgspec import UNSET
from support.cadences import when_made_due
from support.invariants import check_invariants

pytestmark = pytest.mark.thorough

NEVER = RetryPolicy(attempts=3, interval_seconds=3600)


def app_with(body, *, overlap=None, manifests=("m",)) -> App:
    app = App("test")
    app.job("job", group="ops")(body)
    for name in manifests:
        app.schedule(name, job="job", when=when_made_due(), overlap=overlap, retry=NEVER)
    return app


async def forever(ctx):
    await asyncio.Event().wait()


async def idle(ctx): ...


async def test_waiting_work_never_starts_and_a_run_is_asked_to_stop(world, client):
    await world.dispatcher()
    await world.fire(app_with(idle))
    work = await world.until("SELECT id FROM dispatcher.work_queue WHERE state = 'queued'")
    result = await client.cancel(work, reason="wrong customer")
    assert (result.result, result.work, result.manifest) == ("settled", work, "m")
    await world.until_settled()
    again = await client.cancel(work, reason="wrong customer")
    assert (again.result, again.outcome) == ("already_settled", "cancelled")
    assert await world.value("SELECT outcome FROM scheduler.occurrence") == "cancelled"
    await world.worker(app_with(forever))
    await client.trigger("m")
    run = await world.until("SELECT run_id FROM dispatcher.run WHERE state='in_progress'")
    result = await client.cancel(run, reason="enough")
    assert (result.result, result.id, result.run) == ("asked_to_stop", run, run)
    await world.until_settled(at_least=2)
    row = (await client.run(run)).status
    assert (row.state, row.cancel_reason) == ("cancelled", "enough")
    ended = await client.cancel(run)
    assert (ended.result, ended.outcome) == ("already_settled", "cancelled")
    with pytest.raises(RequestFailed, match="no work and no run"):
        await client.cancel(uuid4())
    history = await world.rows(
        "SELECT source, data FROM dispatcher.history"
        " WHERE type = 'headway.work.cancel_requested.v1' AND source LIKE 'operator/%'"
    )
    assert [(row["source"], row["data"]["reason"]) for row in history] == [
        ("operator/ada", "wrong customer"),
        ("operator/ada", "enough"),
    ]
    await check_invariants(world.database)


async def test_an_old_run_that_is_over_does_not_end_the_next_attempt(world, client, nats_url):
    async def broken(ctx):
        raise ValueError("boom")

    await world.serve(app_with(broken))
    await world.fire(app_with(broken))
    run = await world.until("SELECT run_id FROM dispatcher.run WHERE state = 'failed'")
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'waiting'")
    result = await client.cancel(run)
    assert (result.result, result.outcome) == ("already_settled", "failed")
    assert str(result.work) in result.text
    assert await world.value("SELECT state FROM dispatcher.work_queue") == "waiting"
    assert (await client.cancel(result.work)).result == "settled"
    await world.until_settled()


async def test_work_that_is_still_on_its_way_never_starts(world, client):
    """The work is in the scheduler's outbox and has not reached the dispatcher."""
    scheduler = await world.fire(app_with(idle))
    await scheduler.end_pass("relay")
    await world.dispatcher()
    await client.trigger("m")
    work = await world.until("SELECT id FROM scheduler.work")
    assert await world.value("SELECT count(*) FROM dispatcher.work_queue") == 0
    result = await client.cancel(work)
    assert (result.result, "had not arrived" in result.text) == ("settled", True)
    row = (await world.rows("SELECT state, outcome FROM dispatcher.work_queue"))[0]
    assert tuple(row) == ("settled", "cancelled")
    # The messages arrive later and do not change the work.
    await world.scheduler()
    await world.worker(app_with(idle))
    await world.until_settled()
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 0
    await check_invariants(world.database)


async def test_without_a_dispatcher_the_cancel_is_recorded_and_applied_later(world, client):
    await world.provision()
    await world.fire(app_with(idle))
    work = await world.until("SELECT id FROM scheduler.work")
    answer = await client.cancel_manifest("m")
    assert answer.counts == {"asked": 1}
    assert answer.results[0].work == work
    await world.worker(app_with(idle))
    await world.dispatcher()
    await world.until_settled()
    assert await world.value("SELECT outcome FROM scheduler.occurrence") == "cancelled"
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 0


async def test_a_manifest_cancel_ends_its_work_and_its_pending_trigger(world, client):
    app = app_with(forever, overlap="queue_one", manifests=("m", "other"))
    await world.run(app)
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'in_progress'")
    assert (await client.trigger("m")).result == "owed"
    answer = await client.cancel_manifest("m", reason="stop it all")
    assert (answer.counts, answer.dropped) == ({"asked_to_stop": 1}, 1)
    await world.until(
        "SELECT last_outcome = 'cancelled' FROM scheduler.manifest WHERE external_id = 'm'"
    )
    owed = await world.rows(
        "SELECT decision, reason FROM scheduler.occurrence WHERE cause LIKE 'trigger:%'"
    )
    assert [tuple(row) for row in owed] == [("skipped", "cancelled")]
    assert await world.value("SELECT count(*) FROM scheduler.work") == 1, "the other continues"
    again = await client.cancel_manifest("m")
    assert (again.results, again.counts, again.dropped) == ([], {}, 0)
    with pytest.raises(RequestFailed, match="there is no manifest 'n'"):
        await client.cancel_manifest("n")
    await client.cancel_manifest("other")
    await world.until_settled(at_least=2)
    await check_invariants(world.database)


async def test_a_groups_work_ends_with_or_without_a_manifest(world, client):
    app = app_with(forever, manifests=tuple(f"m{number}" for number in range(5)))
    await world.dispatcher(max_active=3)
    await world.worker(app)
    await world.fire(app)
    await world.until("SELECT count(*) = 3 FROM dispatcher.run WHERE state = 'in_progress'")
    without_manifest = WorkQueued(
        work=uuid4(),
        group="ops",
        job="job",
        cause="test",
        queued_at=await world.value("SELECT now()"),
    )
    await _publish(world, without_manifest)
    await world.until("SELECT count(*) = 6 FROM dispatcher.work_queue")
    [room] = await client.occupancy("ops")
    assert (room.in_progress, sum(room.waiting.values())) == (3, 3)
    answer = await client.cancel_group("ops")
    # One transaction cancels all, so that no waiting work takes a freed slot.
    assert answer.counts == {"asked_to_stop": 3, "settled": 3}
    assert without_manifest.work in {result.work for result in answer.results}
    with pytest.raises(RequestFailed, match="no group 'nobody'"):
        await client.cancel_group("nobody")
    await world.until_settled(at_least=6)
    outcomes = await world.rows("SELECT DISTINCT outcome FROM dispatcher.work_queue")
    assert [row["outcome"] for row in outcomes] == ["cancelled"]
    await check_invariants(world.database)


async def test_a_group_cancel_in_several_requests_counts_each_work_once(
    world, client, nats_url, monkeypatch
):
    """The work does not fit into one request; no work is cancelled twice."""
    monkeypatch.setattr(cancel, "_BATCH", 2)
    requests: list[CancelRequest] = []

    async def answer(message) -> None:
        request = msgspec.json.decode(message.data, type=CancelRequest)
        requests.append(request)
        ids = [named.work for named in request.works]
        if len(requests) == 1:
            ids.append(meant[-1])
        results = [CancelResult(id=work, work=work, result="settled") for work in ids]
        reply = CancelAnswer(results=results, counts={"settled": len(ids)})
        await message.respond(msgspec.json.encode(reply))

    await world.provision()
    await world.broker.client.subscribe(subjects.CANCEL_REQUEST, cb=answer)
    await world.fire(app_with(idle, manifests=("a", "b", "c", "d")))
    await world.until("SELECT count(*) = 4 FROM scheduler.work")
    meant = [row["id"] for row in await world.rows("SELECT id FROM scheduler.work ORDER BY id")]
    answered = await client.cancel_group("ops")
    assert answered.counts == {"settled": 4}
    assert [(request.group, len(request.works)) for request in requests] == [("ops", 2), ("ops", 1)]
    assert [named.work for request in requests for named in request.works] == meant[:3]


async def test_a_dead_letter_that_was_just_retried_ends_with_its_manifest(world, client, nats_url):
    """The dispatcher has begun the next round, but the scheduler does not know it yet."""
    app = App("test")

    async def fail(ctx):
        raise ValueError("no")

    app.job("job", group="ops")(fail)
    app.schedule("m", job="job", when=when_made_due(), retry=RetryPolicy(attempts=1))
    await world.run(app)
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    await world.until("SELECT count(*) FROM scheduler.manifest WHERE blocked_by IS NOT NULL")
    await world.stop_workers()
    async with world.database.transaction() as connection:
        times = await read_times(connection, world.database)
        order = letters.RetryOrder(actor="ada", input=UNSET)
        await letters.retry(connection, [letter], order, times=times)
        # Without this message the scheduler does not learn of the retry before the cancel.
        await connection.execute("DELETE FROM dispatcher.outbox")
    assert await world.value("SELECT count(*) FROM scheduler.work") == 0
    answer = await client.cancel_manifest("m")
    assert answer.counts == {"settled": 1}
    state = "SELECT state = 'settled' AND outcome = 'cancelled' FROM dispatcher.work_queue"
    assert await world.value(state)


class TestUnprocessedEnqueuedWork:
    """Enqueued work that no scheduler has processed yet."""

    async def enqueue(self, world, **fields):
        await world.declare(app_with(idle))
        return await world.value("SELECT headway.enqueue('job', key => $1)", fields.get("key"))

    async def cancel(self, world, **fields) -> cancel.Outstanding:
        async with world.database.transaction() as connection:
            request = CancelOutstandingRequest(reason="typo", actor="ada", **fields)
            return await cancel.cancel(connection, request, now=utc_now())

    @pytest.mark.parametrize("by_group", [False, True])
    async def test_it_never_starts_and_is_recorded_as_cancelled(self, world, by_group):
        work = await self.enqueue(world, key="k")
        named = {"group": "ops"} if by_group else {"work": work}
        found = await self.cancel(world, **named)
        assert [(named.work, named.group) for named in found.works] == [(work, "ops")]
        await world.dispatcher()
        await world.scheduler()
        await world.worker(app_with(forever))
        await world.until_settled()
        [row] = await world.rows("SELECT * FROM dispatcher.work_queue")
        assert (row["id"], row["outcome"], row["cancel_reason"]) == (work, "cancelled", "typo")
        assert await self.enqueue(world, key="k") == work, "its key is used"
        assert await world.value("SELECT count(*) FROM dispatcher.run") == 0
        [kept] = await world.rows(
            "SELECT source, data FROM scheduler.history WHERE type = 'headway.work.cancel_asked.v1'"
        )
        assert (kept["source"], kept["data"]["works"]) == ("operator/ada", [str(work)])
        await check_invariants(world.database)

    @pytest.mark.parametrize("by_group", [False, True])
    async def test_a_cancel_waits_for_a_scheduler_that_processes_the_row(self, world, by_group):
        work = await self.enqueue(world)
        named = {"group": "ops"} if by_group else {"work": work}
        async with world.database.transaction() as connection:
            await connection.fetch(enqueued["take"], 1)
            cancelling = asyncio.create_task(self.cancel(world, **named))
            await world.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type='Lock'")
            await connection.execute(
                works["add"], [work], [None], ["c"], [0], await DATABASE_CLOCK.now(connection)
            )
            await connection.execute(enqueued["queued"], [work], ["ops"], [utc_now()], utc_now())
        assert [item.work for item in (await cancelling).works] == [work]

    @pytest.mark.parametrize("moved", [False, True])
    async def test_work_on_its_way_to_the_dispatcher_ends_with_its_group(self, world, moved):
        work = await self.enqueue(world)
        take_up = Enqueue(world.database, relay=Handover())
        await take_up.run_once()
        assert await world.value("SELECT count(*) FROM scheduler.work") == 1, "it is queued"
        if moved:  # the work keeps the group that it was queued in
            await world.value('UPDATE scheduler.job SET terms = terms || \'{"group": "other"}\'')
        found = await self.cancel(world, group="ops")
        assert [(named.work, named.group) for named in found.works] == [(work, "ops")]
        await world.dispatcher()
        await world.scheduler()
        await world.worker(app_with(forever))
        await world.until_settled()
        [row] = await world.rows("SELECT id, outcome FROM dispatcher.work_queue")
        assert tuple(row) == (work, "cancelled")
        assert await world.value("SELECT count(*) FROM dispatcher.run") == 0
        await check_invariants(world.database)

    async def test_a_cancel_of_refused_work_names_the_remedy(self, world, client):
        work = await self.enqueue(world)
        await world.value("DELETE FROM scheduler.job")
        await world.dispatcher()
        await world.scheduler()
        await world.until("SELECT count(*) FROM scheduler.enqueued WHERE state = 'refused'")
        with pytest.raises(RequestFailed, match=f"headway dismiss {work}"):
            await client.cancel(work)


async def test_a_second_cancel_answers_already_settled(
    world,
    client,
):
    await world.dispatcher()
    scheduler = await world.fire(app_with(idle))
    work = await world.until("SELECT id FROM dispatcher.work_queue WHERE state = 'queued'")
    await scheduler.end_pass("intake")
    [first] = (await client.cancel_manifest("m")).results
    [again] = (await client.cancel_manifest("m")).results
    assert (first.work, first.result) == (work, "settled")
    assert (again.work, again.result) == (work, "already_settled")


async def _publish(world, data) -> None:
    body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
    await publish(world.broker, subjects.work("ops"), body)
