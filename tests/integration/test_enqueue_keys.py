"""Keys of enqueued work: the same key is the same work."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import headway
import pytest
import pytest_asyncio
from headway_contract.work import WorkQueued
from headway_relay import Handover
from headway_scheduler import retention
from headway_scheduler.operate.enqueue import Enqueue
from headway_scheduler.retention import Retention
from support.enqueuing import app_with_jobs, count, outcome, process, retried
from support.timeline import Timeline

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def timeline(timeline) -> Timeline:
    await timeline.declare(app_with_jobs())
    return timeline


class TestKeys:
    async def test_the_same_key_and_parameters_give_the_same_work(self, timeline, application):
        works = [await headway.enqueue(application, "mail", 7, key="order-7", delay=5)]
        await process(timeline)
        await timeline.tell(outcome(works[0]))
        # Session settings do not matter, and the input is already deleted.
        await application.execute("SET timezone = 'Asia/Kolkata'; SET intervalstyle = iso_8601")
        works.append(await headway.enqueue(application, "mail", 7, key="order-7", delay=5))
        await process(timeline)
        [event] = await timeline.outbox(WorkQueued)
        assert set(works) == {event.work}
        assert event.cause == "enqueue:mail:order-7"
        [row] = await timeline.rows("SELECT state, input FROM scheduler.enqueued")
        assert tuple(row) == ("queued", None)

    @pytest.mark.parametrize(
        "other",
        [
            {"input": 8},
            {"delay": 6},
            {"group": "x"},
            {"priority": 1},
            {"start_by": datetime(2030, 1, 1, tzinfo=UTC)},
        ],
    )
    async def test_a_key_with_other_parameters_is_refused(self, timeline, application, other):
        given = {"input": 7, "key": "k", "delay": 5}
        await headway.enqueue(application, "mail", **given)
        with pytest.raises(asyncpg.UniqueViolationError, match="with other parameters") as refused:
            await headway.enqueue(application, "mail", **(given | other))
        assert "use another key" in refused.value.hint

    async def test_another_job_may_use_the_same_key(self, timeline, application):
        first = await headway.enqueue(application, "mail", 7, key="k")
        assert await headway.enqueue(application, "free", 7, key="k") != first

    async def test_concurrent_calls_with_one_key_make_one_work(self, timeline, database_url):
        async def enqueue_once() -> UUID:
            connection = await asyncpg.connect(database_url)
            try:
                async with connection.transaction():
                    return await headway.enqueue(connection, "mail", 7, key="k")
            finally:
                await connection.close()

        works = await asyncio.gather(*(enqueue_once() for _ in range(10)))
        await process(timeline)
        assert (len(set(works)), len(await timeline.outbox(WorkQueued))) == (1, 1)

    async def test_a_key_is_free_again_after_a_rollback(self, timeline, database_url):
        first, second = [await asyncpg.connect(database_url) for _ in range(2)]
        transaction = first.transaction()
        await transaction.start()
        await headway.enqueue(first, "mail", 7, key="k")
        waiting = asyncio.create_task(headway.enqueue(second, "mail", 8, key="k"))
        while not await timeline.rows(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        ):
            assert not waiting.done(), "the second must wait for the first"
            await asyncio.sleep(0.01)
        await transaction.rollback()
        await waiting
        await process(timeline)
        assert [work.input for work in await timeline.outbox(WorkQueued)] == [8]
        for connection in (first, second):
            await connection.close()

    async def test_a_key_is_kept_for_a_time_after_its_work_is_settled(self, timeline, application):
        works = {
            key: await headway.enqueue(application, "mail", 7, key=key)
            for key in ("open", "settled", "late", "retried")
        }
        refused = await headway.enqueue(application, "mail", "x", key="refused")
        await Enqueue(timeline.database, relay=Handover()).run_once()
        await timeline.tell(outcome(works["settled"]), outcome(works["retried"]))
        timeline.at(days=20)
        await timeline.tell(outcome(works["late"]))
        await timeline.tell(retried(works["retried"]), outcome(works["retried"], round=2))
        kept = {refused, *works.values()}
        for days, forgotten in ((29, set()), (31, {"settled"}), (51, {"late", "retried"})):
            timeline.at(days=days)
            await Retention(timeline.database, days=30).run_once()
            kept -= {works[key] for key in forgotten}
            rows = await timeline.rows("SELECT work_id FROM scheduler.enqueued")
            assert {row["work_id"] for row in rows} == kept

    async def test_expired_keys_are_deleted_in_batches(self, timeline, application, monkeypatch):
        monkeypatch.setattr(retention, "_BATCH", 2)
        works = [await headway.enqueue(application, "mail", 7, key=key) for key in "abc"]
        await process(timeline)
        await timeline.tell(*map(outcome, works))
        timeline.at(days=31)
        forget = Retention(timeline.database, days=30, every=600).run_once
        assert (await forget(), await count(timeline, "enqueued")) == (0.0, 1), "there is more"
        assert (await forget(), await count(timeline, "enqueued")) == (600, 0)

    async def test_an_expired_key_makes_new_work(self, timeline, application):
        first = await headway.enqueue(application, "mail", 7, key="k")
        await process(timeline)
        await timeline.tell(outcome(first))
        timeline.at(days=31)
        await Retention(timeline.database, days=30).run_once()
        second = await headway.enqueue(application, "mail", 8, key="k")
        await process(timeline)
        assert [(item.work, item.input) for item in await timeline.outbox(WorkQueued)] == [
            (first, 7),
            (second, 8),
        ]
        assert first != second

    @pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
    async def test_a_key_outside_the_snapshot_is_a_serialization_error(
        self, timeline, application, database_url, isolation
    ):
        other = await asyncpg.connect(database_url)
        with pytest.raises(asyncpg.SerializationError):
            async with other.transaction(isolation=isolation):
                await other.fetch("SELECT FROM scheduler.enqueued")
                known = await headway.enqueue(application, "mail", 7, key="k")
                await headway.enqueue(other, "mail", 7, key="k")
        async with other.transaction(isolation=isolation):
            assert await headway.enqueue(other, "mail", 7, key="k") == known
            await application.execute("DELETE FROM scheduler.enqueued")
            assert await headway.enqueue(other, "mail", 7, key="k") != known
        await other.close()

    async def test_a_key_that_is_deleted_concurrently_is_free(
        self, timeline, application, database_url
    ):
        """The conflicting row is deleted before it can be read."""
        first = await headway.enqueue(application, "mail", 7, key="k")
        await application.execute("""
            CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
            CREATE TRIGGER wait AFTER INSERT ON scheduler.enqueued EXECUTE FUNCTION wait();
            SELECT pg_advisory_lock(7);
        """)
        other = await asyncpg.connect(database_url)
        waiting = asyncio.create_task(headway.enqueue(other, "mail", 8, key="k"))
        while not await timeline.rows("SELECT FROM pg_locks WHERE NOT granted"):
            assert not waiting.done(), "it must wait for the test"
            await asyncio.sleep(0.01)
        await application.execute("DELETE FROM scheduler.enqueued")
        await application.execute("SELECT pg_advisory_unlock(7)")
        assert await waiting != first
        await process(timeline)
        assert [work.input for work in await timeline.outbox(WorkQueued)] == [8]
        await other.close()
