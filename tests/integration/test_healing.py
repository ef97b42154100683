"""Reconciliation of work: the services recover from any lost message."""

from datetime import timedelta
from uuid import uuid4

import pytest
from headway import App, manual
from headway_clock import utc_now
from headway_contract import decode, subjects
from headway_contract.reconcile import OutstandingWork
from headway_contract.work_queue import CancelOutstandingRequest
from headway_postgres_kit import DATABASE_CLOCK
from headway_scheduler.healing.healing import Healing
from headway_scheduler.healing.republish import republish_work
from headway_scheduler.operate import cancel
from headway_service_kit.passes import Wakeup
from support.apps import nightly
from support.healing import QUICK, ask, deaf_dispatcher, many, purge, stored_outcomes, stored_work
from support.invariants import check_invariants
from support.world import until

pytestmark = pytest.mark.thorough


@pytest.fixture
def app():
    return nightly()


class TestWork:
    async def test_an_outcome_that_was_lost_comes_with_the_answer(self, world, app):
        await world.serve(app)
        await world.declare(app)
        await world.make_due()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await scheduler.end_pass("intake")
        await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'completed'")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)
        assert await world.value("SELECT count(*) FROM scheduler.work") == 1
        await world.scheduler(**QUICK)
        await world.until_settled()
        [row] = await world.rows("SELECT last_outcome, success_number FROM scheduler.manifest")
        assert tuple(row) == ("completed", 1)
        await check_invariants(world.database)

    async def test_an_answered_outcome_equals_the_published_outcome(self, ops):
        world, manifest = ops.world, uuid4()
        late = await ops.queue(start_by=utc_now() - timedelta(seconds=1))
        dead, _ = await ops.letter()
        ops.mended.set()
        ops.hold.clear()
        done = await ops.queue(manifest_id=manifest, manifest="m")
        await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
        second = await ops.queue(manifest_id=manifest, manifest="m")
        await ops.until_outcome(second, "coalesced")
        ops.hold.set()
        works = {
            late: "expired",
            dead: "dead_lettered",
            done: "completed",
            second: "coalesced",
        }
        for work, outcome in works.items():
            await ops.until_outcome(work, outcome)
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        outcomes = {outcome.work: outcome for outcome in await stored_outcomes(world)}
        outstanding = [OutstandingWork(work=work, round=1, queued_at=utc_now()) for work in works]
        answer = await ask(world, works=outstanding)
        assert {outcome.work: outcome for outcome in answer.settled} == outcomes
        assert {work: bool(settled.reason) for work, settled in outcomes.items()} == {
            work: outcome != "completed" for work, outcome in works.items()
        }

    async def test_work_whose_message_was_lost_is_republished_unchanged(self, world, app):
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await world.until("SELECT count(*) FROM scheduler.stream_mark")
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        [lost] = await stored_work(world)
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="the work is republished")
        [again] = await stored_work(world)
        assert again == lost
        await world.worker(app)
        await world.dispatcher()
        await world.until_settled()
        await check_invariants(world.database)

    async def test_lost_work_keeps_its_key_and_what_its_trigger_stated(self, world, client):
        app = App("test")

        @app.job("job", group="ops", concurrency_key="customer:{input.id}", concurrency_limit=2)
        async def job(ctx, given: dict[str, int]): ...

        app.schedule("sync", job=job, input={"id": 7}, when=manual())
        await deaf_dispatcher(world)
        await world.scheduler(app, **QUICK)
        await client.trigger("sync", input={"id": 8}, priority=5, start_within=3600)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        [lost] = await stored_work(world)
        assert (lost.concurrency_key, lost.priority) == ("customer:8", 5)
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="the work is republished")
        assert await stored_work(world) == [lost]

    async def test_lost_work_whose_key_cannot_be_computed_is_not_republished(self, world, app):
        await world.declare(app)
        await world.make_due()
        scheduler = await world.scheduler(ask_after_seconds=3600)
        work = await world.until("SELECT id FROM scheduler.work")
        await scheduler.end_pass("relay")
        await world.value("DELETE FROM scheduler.outbox")
        await world.value(
            """UPDATE scheduler.manifest
               SET terms = terms || '{"concurrency_key": "customer:{input.id}"}'"""
        )
        async with world.database.transaction() as connection:
            now = await DATABASE_CLOCK.now(connection)
            assert await republish_work(connection, [work], now=now) == 0
        assert await world.value("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")

    async def test_a_backlog_that_waits_in_the_stream_is_not_multiplied(self, world):
        app = many(2500)
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, max_entries_per_cycle=None, **QUICK)
        await world.until("SELECT count(*) = 2500 FROM scheduler.work")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        # The scheduler asks about every piece of work several times.
        await world.until(
            "SELECT min(reconciled_at) > min(queued_at) + interval '4 seconds' FROM scheduler.work"
            " HAVING count(reconciled_at) = 2500",
            within=60,
        )
        assert (
            await world.value(
                "SELECT count(*) FROM scheduler.work WHERE republished_at IS NOT NULL"
            )
            == 0
        )
        waiting = await stored_work(world)
        assert len(waiting) == len({queued.work for queued in waiting}) == 2500
        await world.dispatcher()
        await world.until("SELECT count(*) = 2500 FROM dispatcher.work_queue", within=30)

    async def test_without_an_answer_nothing_is_republished(self, world, app):
        dispatcher = await world.dispatcher()
        await dispatcher.stop()
        world.services.remove(dispatcher)
        await world.declare(app)
        await world.make_due()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await scheduler.end_pass("healing")
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await purge(world, subjects.WORK_STREAM)
        healing = Healing(
            world.database,
            world.broker,
            holder="me",
            ask_after_seconds=0.0,
            relay=Wakeup(),
            tick=Wakeup(),
        )
        for _ in range(3):
            assert await healing.run_once() is None, "no dispatcher answers"
        # The relay deletes the rows of published messages a moment later.
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        assert await stored_work(world) == []
        await world.scheduler(**QUICK)
        await world.worker(app)
        await world.dispatcher()
        await world.until_settled()

    async def test_work_beyond_the_horizon_is_settled_as_unknown_and_its_manifest_goes_on(
        self, world, client, app
    ):
        await deaf_dispatcher(world, history_days=1)
        await world.declare(app)
        await world.make_due()
        first = await world.scheduler(app, ask_after_seconds=3600)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await first.end_pass("tick")
        await purge(world, subjects.WORK_STREAM)
        await world.value("UPDATE scheduler.work SET queued_at = queued_at - interval '2 days'")
        await world.scheduler(tick="off", **QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        assert await world.value("SELECT outcome FROM scheduler.occurrence") == "unknown"
        [row] = await world.rows(
            "SELECT last_outcome, wake_at > now() AS goes_on FROM scheduler.manifest"
        )
        assert tuple(row) == ("unknown", True)
        [manifest] = await world.rows("SELECT external_id FROM scheduler.manifest")
        explained = await client.explain(manifest["external_id"])
        assert "its outcome is unknown" in explained.text

    async def test_lost_work_runs_by_the_current_definition_of_its_manifest(self, world, app):
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await world.value(
            """UPDATE scheduler.manifest
               SET terms = terms || '{"timeout_seconds": 7, "priority": 3}'"""
        )
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="the work is republished")
        [again] = await stored_work(world)
        assert (again.terms.timeout_seconds, again.priority) == (7, 3)

    async def test_enqueued_work_whose_message_was_lost_is_republished(self, world, app):
        await deaf_dispatcher(world)
        await world.scheduler(app, **QUICK)
        work = await world.value("SELECT headway.enqueue('job')")
        await until(lambda: stored_work(world), within=20, what="the message is stored")
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="the work is republished")
        [again] = await stored_work(world)
        assert (again.work, again.job) == (work, "job")


class TestRequests:
    """Cancels and bring-forward requests that do not reach the dispatcher."""

    @pytest.fixture
    async def waiting(self, world, app):
        """Return work that waits at the dispatcher; the scheduler's messages are not published."""
        await world.dispatcher()
        await world.declare(app)
        await world.make_due()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        work = await world.until("SELECT id FROM dispatcher.work_queue")
        await scheduler.end_pass("relay")
        return work

    async def cancel(self, world, work) -> None:
        async with world.database.transaction() as connection:
            request = CancelOutstandingRequest(work=work, reason="typo")
            await cancel.cancel(connection, request, now=await DATABASE_CLOCK.now(connection))

    async def test_a_lost_cancel_is_republished(self, world, waiting):
        await self.cancel(world, waiting)
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until_settled()
        [row] = await world.rows("SELECT outcome, cancel_reason FROM dispatcher.work_queue")
        assert tuple(row) == ("cancelled", "typo")
        await check_invariants(world.database)

    async def test_lost_work_that_was_cancelled_is_not_republished(self, world, app):
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await scheduler.end_pass("relay")
        await self.cancel(world, await world.value("SELECT id FROM scheduler.work"))
        await world.value("DELETE FROM scheduler.outbox")
        await purge(world, subjects.WORK_STREAM)
        await world.scheduler(tick="off", **QUICK)
        await world.dispatcher()
        await world.until_settled()
        assert await world.value("SELECT outcome FROM dispatcher.work_queue") == "cancelled"
        assert await world.value("SELECT count(*) FROM dispatcher.run") == 0

    async def test_a_lost_bring_forward_request_is_republished_once(self, world, client, waiting):
        [row] = await world.rows("SELECT external_id FROM scheduler.manifest")
        assert (await client.trigger(row["external_id"])).result == "brought_forward"
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        forward = "SELECT count(*) FROM dispatcher.history WHERE type LIKE '%brought_forward%'"
        await world.until(forward)
        requested_at = await world.value("SELECT forward_requested_at FROM scheduler.work")
        # The scheduler asks again, and the answer confirms the request.
        await world.until(
            "SELECT reconciled_at > $1 AND reconcile_count > 1 FROM scheduler.work", requested_at
        )
        assert await world.value("SELECT forward_requested_at FROM scheduler.work") == requested_at
        assert await world.value(forward) == 1
        assert await world.value("SELECT explicit FROM dispatcher.work_queue")

    async def test_work_that_ran_since_need_not_come_first(self, world, waiting):
        now = await world.value("SELECT clock_timestamp()")
        outstanding = OutstandingWork(
            work=waiting, queued_at=now, brought_forward_at=now, cancelled=True
        )
        answer = await ask(world, works=[outstanding])
        assert answer.not_brought_forward == answer.not_cancelled == [waiting]
        await world.beat("idle")
        await world.until("SELECT count(*) FROM dispatcher.run")
        answer = await ask(world, works=[outstanding])
        assert (answer.not_brought_forward, answer.not_cancelled) == ([], [waiting])


class TestPoison:
    """Work that the dispatcher can never store."""

    async def test_work_that_was_republished_in_vain_is_sent_alone_and_recorded(self, world):
        await world.declare(many(3))
        await world.make_due()
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await world.until("SELECT count(*) = 3 FROM scheduler.work")
        await scheduler.end_pass("relay")
        works = [row["id"] for row in await world.rows("SELECT id FROM scheduler.work")]
        batches = []
        for _ in range(3):
            await world.value("DELETE FROM scheduler.outbox")
            async with world.database.transaction() as connection:
                now = await DATABASE_CLOCK.now(connection)
                assert await republish_work(connection, works, now=now) == 3
            rows = await world.rows("SELECT body FROM scheduler.outbox")
            batches.append(sorted(len(decode(row["body"])) for row in rows))
        assert batches == [[3], [1, 1, 1], [1, 1, 1]]
        noted = await world.rows(
            "SELECT subject, data FROM scheduler.history"
            " WHERE type = 'headway.work.told_in_vain.v1' ORDER BY id"
        )
        assert {row["subject"] for row in noted} == {str(work) for work in works}
        assert [row["data"]["told_again"] for row in noted] == [2, 2, 2, 3, 3, 3]

    @pytest.mark.long
    async def test_it_is_republished_with_backoff_and_other_work_is_stored(self, world):
        await world.dispatcher()
        await world.value(
            "ALTER TABLE dispatcher.work_queue ADD CONSTRAINT no CHECK (manifest NOT LIKE 'many-n0%')"
        )
        app = many(3)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await world.until(
            "SELECT republish_count = 3 FROM scheduler.work ORDER BY republish_count DESC",
            within=90,
        )
        assert await world.value("SELECT count(*) FROM dispatcher.work_queue") == 2
        [row] = await world.rows(
            "SELECT reconcile_at - republished_at AS pause FROM scheduler.work WHERE republish_count = 3"
        )
        assert row["pause"] >= timedelta(seconds=4 * QUICK["ask_after_seconds"])
