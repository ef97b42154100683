"""Anti-entropy: whatever message is lost, what it told is asked for or told again."""

import asyncio
import base64
from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest
from headway import App, Client, every, retry
from headway_contract import Event, decode, subjects
from headway_contract.control import Heartbeat
from headway_contract.healing import AskedWork, ReconcileAnswer, ReconcileQuestion
from headway_contract.scheduling import CancelOutstandingRequest
from headway_contract.work import WorkQueued
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import DATABASE_CLOCK
from headway_scheduler import cancel
from headway_scheduler.retell import retell_work
from support.invariants import check_invariants
from support.world import until

QUICK = {"ask_after_seconds": 0.4}


@pytest.fixture
def app():
    app = App("test")

    @app.job("job", group="ops")
    @every(hours=24)
    async def job(ctx):
        return "done"

    return app


def many(count: int) -> App:
    app = App("test")

    @app.job("job", group="ops")
    async def job(ctx): ...

    app.schedule_many(
        "many", job=job, items=[(f"n{i}", None) for i in range(count)], when=every(hours=24)
    )
    return app


async def stored_work(world) -> list[WorkQueued]:
    """Every piece of work that waits in the stream, and again for each time it is there."""
    info = await world.broker.api(f"STREAM.INFO.{subjects.WORK_STREAM}")
    state, found = info["state"], []
    for sequence in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        raw = await world.broker.api(f"STREAM.MSG.GET.{subjects.WORK_STREAM}", {"seq": sequence})
        found += [
            one.data
            for one in decode(base64.b64decode(raw["message"]["data"]))
            if isinstance(one, Event) and isinstance(one.data, WorkQueued)
        ]
    return found


async def deaf_dispatcher(world, *, knows_limits: bool = True, **settings):
    """A dispatcher that answers questions and takes nothing in."""
    dispatcher = await world.dispatcher(**settings)
    await dispatcher.end_pass("intake")
    if knows_limits:
        # Otherwise its limits are told again first, and it does not take them in either.
        await world.value("INSERT INTO dispatcher.group_limit (name, version) VALUES ('ops', 9999)")
        await world.value("INSERT INTO dispatcher.job_limit (name, version) VALUES ('job', 9999)")

    async def has_no_pull_open() -> bool:
        info = await consumer_info(world.broker, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
        return info["num_waiting"] == 0

    await until(has_no_pull_open, within=10, what="its last pull is over")
    return dispatcher


async def ask(world, **question) -> ReconcileAnswer:
    reply = await world.broker.client.request(
        subjects.RECONCILE_QUESTION,
        msgspec.json.encode(ReconcileQuestion(**question)),
        timeout=5,
    )
    return msgspec.json.decode(reply.data, type=ReconcileAnswer)


async def purge(world, stream: str) -> None:
    await world.broker.api(f"STREAM.PURGE.{stream}")


class TestWork:
    async def test_an_outcome_that_was_lost_comes_with_the_answer(self, world, app):
        await world.dispatcher()
        await world.worker(app)
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

    async def test_work_whose_message_was_lost_is_told_again_as_it_was(self, world, app):
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await world.until("SELECT count(*) FROM scheduler.stream_mark")
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        [lost] = await stored_work(world)
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="it is told again")
        [again] = await stored_work(world)
        assert again == lost
        await world.worker(app)
        await world.dispatcher()
        await world.until_settled()
        await check_invariants(world.database)

    async def test_a_backlog_that_waits_in_the_stream_is_not_multiplied(self, world):
        app = many(2500)
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, max_entries_per_cycle=None, **QUICK)
        await world.until("SELECT count(*) = 2500 FROM scheduler.work")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        # Every piece of work is asked about, several times over.
        await world.until(
            "SELECT min(asked_at) > min(queued_at) + interval '4 seconds' FROM scheduler.work"
            " HAVING count(asked_at) = 2500",
            within=60,
        )
        assert (
            await world.value("SELECT count(*) FROM scheduler.work WHERE told_again_at IS NOT NULL")
            == 0
        )
        waiting = await stored_work(world)
        assert len(waiting) == len({one.work for one in waiting}) == 2500
        await world.dispatcher()
        await world.until("SELECT count(*) = 2500 FROM dispatcher.work_queue", within=30)

    async def test_while_nobody_answers_nothing_is_told_again(self, world, app):
        dispatcher = await world.dispatcher()
        await dispatcher.stop()
        world.services.remove(dispatcher)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await purge(world, subjects.WORK_STREAM)
        await asyncio.sleep(2)  # nothing is to happen, and that has no signal
        assert await stored_work(world) == []
        await world.worker(app)
        await world.dispatcher()
        await world.until_settled()

    async def test_work_beyond_the_horizon_is_settled_as_unknown_and_its_manifest_goes_on(
        self, world, app
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
        async with Client(world.nats_url) as client:
            explained = await client.explain(manifest["external_id"])
        assert "nobody knows how it ended" in explained.text

    async def test_the_manifests_present_definition_is_what_lost_work_runs_by(self, world, app):
        await deaf_dispatcher(world)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await until(lambda: stored_work(world), within=10, what="the message is stored")
        await world.value("UPDATE scheduler.manifest SET timeout_seconds = 7, priority = 3")
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="it is told again")
        [again] = await stored_work(world)
        assert (again.timeout_seconds, again.priority) == (7, 3)

    async def test_enqueued_work_whose_message_was_lost_is_told_again(self, world, app):
        await deaf_dispatcher(world)
        await world.scheduler(app, **QUICK)
        work = await world.value("SELECT headway.enqueue('job')")
        await until(lambda: stored_work(world), within=20, what="the message is stored")
        await purge(world, subjects.WORK_STREAM)
        await until(lambda: stored_work(world), within=20, what="it is told again")
        [again] = await stored_work(world)
        assert (again.work, again.job) == (work, "job")


class TestRequests:
    """Cancels, and what is to come first, that never reach the dispatcher."""

    @pytest.fixture
    async def waiting(self, world, app):
        """Work that waits at the dispatcher, and a scheduler whose messages do not get out."""
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

    async def test_a_cancel_that_was_lost_is_told_again(self, world, waiting):
        await self.cancel(world, waiting)
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until_settled()
        [row] = await world.rows("SELECT outcome, cancel_reason FROM dispatcher.work_queue")
        assert tuple(row) == ("cancelled", "typo")
        await check_invariants(world.database)

    async def test_lost_work_that_was_cancelled_is_not_told_any_more(self, world, app):
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
        assert await world.value("SELECT count(*) FROM dispatcher.metadata") == 0

    async def test_what_was_to_come_first_is_told_again_and_only_once(self, world, waiting):
        [row] = await world.rows("SELECT external_id FROM scheduler.manifest")
        async with Client(world.nats_url) as client:
            assert (await client.trigger(row["external_id"])).result == "brought_forward"
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        forward = "SELECT count(*) FROM dispatcher.history WHERE type LIKE '%brought_forward%'"
        await world.until(forward)
        told_at = await world.value("SELECT forward_told_at FROM scheduler.work")
        # It is asked about again, and the answer is that it came.
        await world.until("SELECT asked_at > $1 AND asks > 1 FROM scheduler.work", told_at)
        assert await world.value("SELECT forward_told_at FROM scheduler.work") == told_at
        assert await world.value(forward) == 1
        assert await world.value("SELECT explicit FROM dispatcher.work_queue")

    async def test_work_that_ran_since_need_not_come_first(self, world, waiting):
        now = await world.value("SELECT clock_timestamp()")
        asked = AskedWork(work=waiting, queued_at=now, brought_forward_at=now, cancelled=True)
        answer = await ask(world, works=[asked])
        assert answer.not_brought_forward == answer.not_cancelled == [waiting]
        beat = Heartbeat(worker="idle", nonce="n", jobs=["job"], slots=1)
        await world.broker.client.request(subjects.HEARTBEAT, msgspec.json.encode(beat), timeout=5)
        await world.until("SELECT count(*) FROM dispatcher.metadata")
        answer = await ask(world, works=[asked])
        assert (answer.not_brought_forward, answer.not_cancelled) == ([], [waiting])


class TestPoison:
    """Work that the dispatcher can never take in."""

    async def test_what_was_told_in_vain_is_told_alone_and_noted(self, world):
        await world.declare(many(3))
        await world.make_due()
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await world.until("SELECT count(*) = 3 FROM scheduler.work")
        await scheduler.end_pass("relay")
        works = [row["id"] for row in await world.rows("SELECT id FROM scheduler.work")]
        told = []
        for _ in range(3):
            await world.value("DELETE FROM scheduler.outbox")
            async with world.database.transaction() as connection:
                now = await DATABASE_CLOCK.now(connection)
                assert await retell_work(connection, works, now=now) == 3
            rows = await world.rows("SELECT body FROM scheduler.outbox")
            told.append(sorted(len(decode(row["body"])) for row in rows))
        assert told == [[3], [1, 1, 1], [1, 1, 1]]
        noted = await world.rows(
            "SELECT subject, data FROM scheduler.history"
            " WHERE type = 'headway.work.told_in_vain.v1' ORDER BY id"
        )
        assert {row["subject"] for row in noted} == {str(work) for work in works}
        assert [row["data"]["told_again"] for row in noted] == [2, 2, 2, 3, 3, 3]

    @pytest.mark.long
    async def test_it_is_told_with_pauses_that_double_and_what_came_with_it_gets_in(self, world):
        await world.dispatcher()
        await world.value(
            "ALTER TABLE dispatcher.work_queue ADD CONSTRAINT no CHECK (manifest NOT LIKE 'many-n0%')"
        )
        app = many(3)
        await world.declare(app)
        await world.make_due()
        await world.scheduler(app, **QUICK)
        await world.until(
            "SELECT tellings = 3 FROM scheduler.work ORDER BY tellings DESC", within=90
        )
        assert await world.value("SELECT count(*) FROM dispatcher.work_queue") == 2
        [row] = await world.rows(
            "SELECT ask_at - told_again_at AS pause FROM scheduler.work WHERE tellings = 3"
        )
        assert row["pause"] >= timedelta(seconds=4 * QUICK["ask_after_seconds"])


class TestBlocks:
    """A manifest that a dead letter blocks, and messages about it that never came."""

    @pytest.fixture
    async def failing(self, world):
        app = App("test")

        @app.job("job", group="ops")
        @every(hours=24)
        @retry(attempts=1)
        async def job(ctx):
            raise RuntimeError("no")

        await world.dispatcher()
        await world.worker(app)
        return app

    async def blocked(self, world, app):
        await world.fire(app)
        await world.until("SELECT blocked_by IS NOT NULL FROM scheduler.manifest")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        return await world.value("SELECT blocked_by FROM scheduler.manifest")

    async def test_a_letter_whose_outcome_was_lost_blocks_all_the_same(self, world, failing):
        await world.declare(failing)
        await world.make_due()
        scheduler = await world.scheduler(failing, ask_after_seconds=3600)
        await scheduler.end_pass("intake")
        await world.until("SELECT count(*) FROM dispatcher.dead_letter")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by IS NOT NULL FROM scheduler.manifest")
        letter = await world.value("SELECT id FROM dispatcher.dead_letter")
        assert await world.value("SELECT blocked_by FROM scheduler.manifest") == letter
        await check_invariants(world.database)

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_a_letter_that_was_acknowledged_unheard_unblocks(self, world, failing):
        await self.blocked(world, failing)
        await world.value(
            "UPDATE dispatcher.dead_letter"
            " SET state = 'acknowledged', resolved_at = clock_timestamp(), actor = 'ada'"
        )
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by IS NULL FROM scheduler.manifest")

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_a_letter_that_nobody_keeps_any_more_unblocks(self, world, failing):
        await self.blocked(world, failing)
        await world.value("DELETE FROM dispatcher.dead_letter")
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by IS NULL FROM scheduler.manifest")

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_a_letter_that_was_retried_unheard_is_under_way_again(self, world, failing):
        letter = await self.blocked(world, failing)
        await world.value(
            "UPDATE dispatcher.dead_letter SET state = 'retried', resolved_at = clock_timestamp()"
        )
        await world.value(
            "UPDATE dispatcher.work_queue SET round = 2, state = 'queued', wait_reason = 'x',"
            " outcome = NULL, settled_at = NULL, attempts = 0"
        )
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by <> $1 FROM scheduler.manifest", letter)
        assert await world.value("SELECT count(*) FROM dispatcher.metadata WHERE round = 2") == 1
        [row] = await world.rows("SELECT settled_round, outcome FROM scheduler.occurrence")
        assert tuple(row) == (2, "dead_lettered")

    async def test_a_letter_that_waits_for_a_person_goes_on_blocking(self, world, failing):
        letter = await self.blocked(world, failing)
        answer = await ask(world, dead_letters=[letter])
        assert (answer.retried, answer.acknowledged, answer.forgotten) == ([], [], [])


class TestStanding:
    async def test_limits_that_were_lost_are_told_again(self, world, app):
        await deaf_dispatcher(world, knows_limits=False)
        await world.scheduler(app, **QUICK)
        await world.until("SELECT count(*) FROM scheduler.manifest_group")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await purge(world, subjects.WORK_STREAM)
        await world.dispatcher()
        for told, known in (("manifest_group", "group_limit"), ("job", "job_limit")):
            await world.until(
                f"SELECT known.version = told.version FROM dispatcher.{known} AS known"
                f" JOIN scheduler.{told} AS told USING (name)"
            )

    async def test_a_switch_that_was_lost_is_told_again(self, world, app):
        await world.dispatcher()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await scheduler.end_pass("relay")
        [row] = await world.rows("SELECT external_id FROM scheduler.manifest")
        async with Client(world.nats_url) as client:
            await client.disable(row["external_id"])
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT enabled FROM dispatcher.manifest_switch")

    async def test_a_prune_that_was_lost_is_told_again(self, world, app):
        await world.dispatcher()
        await world.declare(app)
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await scheduler.end_pass("relay")
        await world.declare(App("test"))
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")
        assert await world.value("SELECT count(*) FROM dispatcher.tombstone") == 1

    async def test_a_confirmation_that_was_lost_comes_with_the_answer(self, world, app):
        await world.dispatcher()
        await world.declare(app)
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await scheduler.end_pass("intake")
        await world.declare(App("test"))
        await world.until(
            "SELECT count(*) FROM dispatcher.tombstone WHERE confirmed_at IS NOT NULL"
        )
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")


class TestAnswers:
    """What a dispatcher says to a question, seen from the wire."""

    async def test_unknown_work_is_unknown_unless_it_is_too_old_or_its_manifest_is_gone(
        self, world
    ):
        await world.dispatcher(history_days=30)
        gone, young, old, round_two, pruned = (uuid4() for _ in range(5))
        await world.value(
            "INSERT INTO dispatcher.tombstone (manifest_id, manifest, group_name, reason, pruned_at)"
            " VALUES ($1, 'm', 'ops', '', clock_timestamp())",
            gone,
        )
        now = await world.value("SELECT clock_timestamp()")
        works = [
            AskedWork(work=young, queued_at=now - timedelta(days=29)),
            AskedWork(work=old, queued_at=now - timedelta(days=31)),
            AskedWork(work=round_two, round=2, queued_at=now),
            AskedWork(work=pruned, manifest_id=gone, queued_at=now),
        ]
        answer = await ask(world, works=works)
        assert answer.unknown == [young]
        assert set(answer.expired) == {old, round_two}
        assert [(one.work, one.outcome) for one in answer.settled] == [(pruned, "cancelled")]

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_an_answer_has_room_for_so_much_and_says_what_it_left_out(self, world, app):
        await world.dispatcher()
        await world.worker(app)
        await world.fire(app)
        await world.until_settled()
        [row] = await world.rows("SELECT id FROM dispatcher.work_queue")
        work = row["id"]
        await world.value(
            "INSERT INTO dispatcher.work_queue SELECT (jsonb_populate_record(work_queue,"
            " jsonb_build_object('id', gen_random_uuid(), 'slot', n, 'cancel_reason',"
            " repeat('x', 300000), 'cancel_requested_at', clock_timestamp()))).*"
            " FROM dispatcher.work_queue, generate_series(1, 4) AS n"
        )
        rows = await world.rows(
            "SELECT id, queued_at FROM dispatcher.work_queue ORDER BY id = $1", work
        )
        works = [AskedWork(work=row["id"], queued_at=row["queued_at"]) for row in rows]
        answer = await ask(world, works=works)
        assert len(answer.settled) == 2
        assert {one.work for one in answer.settled} | set(answer.left) == {
            one.work for one in works
        }


class TestOrders:
    async def test_an_order_that_is_gone_is_put_back_and_counted(self, world, app):
        await world.dispatcher()
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        # Somebody serves the job, takes no order, and so nobody claims.
        beat = Heartbeat(worker="idle", nonce="n", jobs=["job"], slots=1)
        await world.broker.client.request(subjects.HEARTBEAT, msgspec.json.encode(beat), timeout=5)
        await world.until("SELECT count(*) FROM dispatcher.lease")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.RUNS_STREAM)
        await world.worker(app)
        await world.until_settled()
        [row] = await world.rows("SELECT state, reissued, attempt FROM dispatcher.metadata")
        assert tuple(row) == ("completed", 1, 1)
        await check_invariants(world.database)

    async def test_an_order_that_a_heartbeat_lists_is_not_put_back(self, world, app):
        await world.dispatcher(orphan_timeout_seconds=3.0)
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")

        async def beat(*leases) -> None:
            heartbeat = Heartbeat(worker="w", nonce="n", jobs=["job"], slots=1, leases=list(leases))
            await world.broker.client.request(
                subjects.HEARTBEAT, msgspec.json.encode(heartbeat), timeout=5
            )

        async def stored() -> int:
            info = await world.broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}")
            return info["state"]["messages"]

        await beat()
        lease = await world.until("SELECT id FROM dispatcher.lease")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await beat(lease)
        await purge(world, subjects.RUNS_STREAM)
        for _ in range(20):
            await beat(lease)
            await asyncio.sleep(0.2)
            assert await stored() == 0
        # Once nobody lists it for the orphan timeout, it may be given out again.
        await until(stored, within=10, what="the order is back")
        await world.until("SELECT reissued = 1 FROM dispatcher.metadata")

    async def test_a_lease_that_somebody_lists_is_not_taken_for_undelivered(self, world, app):
        await world.dispatcher(orphan_timeout_seconds=2.0, stale_pending_seconds=0.5)
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")

        async def beat(*leases) -> None:
            heartbeat = Heartbeat(worker="w", nonce="n", jobs=["job"], slots=1, leases=list(leases))
            await world.broker.client.request(
                subjects.HEARTBEAT, msgspec.json.encode(heartbeat), timeout=5
            )

        await beat()
        lease = await world.until("SELECT id FROM dispatcher.lease")
        for _ in range(20):
            await beat(lease)
            await asyncio.sleep(0.2)
        assert await world.value(
            "SELECT ended_at IS NULL FROM dispatcher.lease WHERE id = $1", lease
        )
        await world.until("SELECT ended_at IS NOT NULL FROM dispatcher.lease WHERE id = $1", lease)

    async def test_an_order_that_waits_is_offered_in_vain(self, world, app):
        await world.dispatcher()
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        beat = Heartbeat(worker="idle", nonce="n", jobs=["job"], slots=1)
        await world.broker.client.request(subjects.HEARTBEAT, msgspec.json.encode(beat), timeout=5)
        await world.until("SELECT count(*) FROM dispatcher.lease")
        dispatcher = world.services[0]
        for _ in range(8):
            dispatcher.wake("orders")
            await asyncio.sleep(0.3)
        info = await world.broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}")
        assert info["state"]["messages"] == 1
        assert await world.value("SELECT reissued FROM dispatcher.metadata") == 0

    async def test_a_worker_whose_last_words_were_lost_says_them_again_and_runs_nothing_twice(
        self, world
    ):
        app = App("test")
        begun = []

        @app.job("job", group="ops")
        @every(hours=24)
        async def job(ctx):
            begun.append(ctx.run)
            return "once"

        dispatcher = await world.dispatcher(orphan_timeout_seconds=1.5)
        await dispatcher.end_pass("projector")
        worker = await world.worker(app)
        await world.fire(app)
        await until(lambda: _finished(worker), within=10, what="the run has ended")
        for stream in (subjects.EVENTS_STREAM, subjects.RUNS_STREAM):
            await world.broker.api(f"STREAM.DELETE.{stream}")
        await world.dispatcher(orphan_timeout_seconds=1.5)
        await world.until_settled(within=30)
        [row] = await world.rows("SELECT state, output, reissued FROM dispatcher.metadata")
        assert tuple(row) == ("completed", "once", 1)
        assert len(begun) == 1
        await check_invariants(world.database)


async def _finished(worker) -> bool:
    return bool(worker._finished)
