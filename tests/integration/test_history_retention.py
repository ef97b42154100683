"""Retention of history: old rows are deleted, needed rows stay, and `verify` finds nothing."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from headway import App
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import WorkCancelRequested, WorkQueued
from headway_dispatcher.history import retention as retention_module
from headway_dispatcher.history.rebuild import rebuild
from headway_dispatcher.history.verify import verify
from headway_jetstream_kit.publish import publish
from support.generated import make_works
from support.old_history import TABLES, ClockAhead, cleaner, counts, move_into_past, run_and_stop
from support.world import World, until

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def stopped(world: World) -> World:
    return await run_and_stop(world)


async def test_settled_work_goes_with_all_that_belongs_to_it_and_nothing_else(stopped):
    assert (await counts(stopped))["inbox"] == 9
    assert (await cleaner(stopped).run_once()).works == 0
    cleaned = await cleaner(stopped, clock=ClockAhead(days=31)).run_once()
    assert cleaned.works == 1
    assert await counts(stopped) == {
        "work_queue": 2,
        "metadata": 2,
        "dead_letter": 1,
        "lease": 2,
        "inbox": 6,
    }
    assert await stopped.value("SELECT array_agg(job ORDER BY job) FROM dispatcher.work_queue") == [
        "hopeless",
        "patient",
    ]
    assert (await verify(stopped.database)).differences == [], "only old rows are deleted"


@pytest.mark.breaks_tables("deletes work that no clean-up has deleted")
async def test_rows_deleted_outside_retention_are_reported_as_missing(stopped):
    await cleaner(stopped, clock=ClockAhead(days=31)).run_once()
    await stopped.value("DELETE FROM dispatcher.dead_letter")
    await stopped.value("DELETE FROM dispatcher.metadata")
    await stopped.value("DELETE FROM dispatcher.work_queue")
    kinds = [difference.kind for difference in (await verify(stopped.database)).differences]
    assert kinds == ["missing"] * 5, "two works, two runs, a dead letter"


async def resolve_later(stopped: World) -> None:
    """Resolve the dead letter twenty days after its work was settled."""
    await stopped.value(
        "UPDATE dispatcher.dead_letter SET state = 'acknowledged', resolved_at = now() + '20 days'"
    )
    await stopped.value(
        "INSERT INTO dispatcher.history (event_id, type, subject, source, occurred_at, data,"
        " accepted, work_id, recorded_at) SELECT 'x', 'headway.dead_letter.acknowledged.v1', id::text,"
        " 'operator/me', now(), jsonb_build_object('dead_letter', id, 'round', 1,"
        " 'resolved_at', resolved_at), true, work_id, now() FROM dispatcher.dead_letter"
    )


async def test_a_resolved_dead_letter_lets_its_work_go_after_its_own_time(stopped):
    await resolve_later(stopped)
    assert (await verify(stopped.database)).differences == []
    assert (await cleaner(stopped, clock=ClockAhead(days=31)).run_once()).works == 1
    assert (await cleaner(stopped, clock=ClockAhead(days=51)).run_once()).works == 1
    assert await stopped.value("SELECT array_agg(job) FROM dispatcher.work_queue") == ["patient"]
    assert (await verify(stopped.database)).differences == []


@pytest.mark.breaks_tables("deletes work that no clean-up has deleted")
async def test_work_whose_dead_letter_was_resolved_lately_is_missed_and_comes_back(stopped):
    await resolve_later(stopped)
    await cleaner(stopped, clock=ClockAhead(days=31)).run_once()
    for table in ("dead_letter", "metadata", "work_queue"):
        await stopped.value(f"DELETE FROM dispatcher.{table} WHERE job = 'hopeless'")
    kinds = [difference.kind for difference in (await verify(stopped.database)).differences]
    assert kinds == ["missing"] * 3, "a work, a run, a dead letter"
    await stopped.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    await rebuild(stopped.database)
    assert (await counts(stopped))["dead_letter"] == 1
    assert (await verify(stopped.database)).differences == []


async def test_late_messages_about_deleted_work_are_ignored(world):
    """History outlives its work for a while, and would mix two lives of the same id."""
    sent_at, work, begun = utc_now(), uuid4(), []
    app = App("old")

    @app.job("job")
    async def job(ctx):
        begun.append(ctx)

    queued = WorkQueued(work=work, group="ops", job="job", cause="test", queued_at=sent_at)
    cancel = WorkCancelRequested(work=work, group="ops", reason="late", requested_at=sent_at)
    dispatcher = await world.dispatcher()
    await world.worker(app)
    await publish_events(world, work, sent_at, queued)
    await world.until_settled()
    world.services.remove(dispatcher)
    await dispatcher.stop()
    dispatcher = await world.dispatcher(clock=ClockAhead(days=31))
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue)")
    before = dispatcher.counts.get("work_too_old", 0)
    await publish_events(world, work, sent_at, cancel, queued)

    async def passed_over() -> bool:
        return dispatcher.counts.get("work_too_old", 0) == before + 2

    await until(passed_over, within=10, what="both messages are ignored")
    assert await counts(world) == dict.fromkeys(TABLES, 0)
    assert len(begun) == 1
    assert (await verify(world.database)).differences == []


async def publish_events(world: World, work: UUID, at: datetime, *events: Any) -> None:
    for data in events:
        body = encode(event(data, id=uuid4(), source="test", subject=work, time=at))
        await publish(world.broker, subjects.work("ops"), body)


async def test_many_rows_are_deleted_in_batches(world, monkeypatch):
    monkeypatch.setattr(retention_module, "BATCH", 300)
    await make_works(world.database, 1000)
    clean = cleaner(world, clock=ClockAhead(days=31))
    assert [(await clean.run_once()).works for _ in range(5)] == [300, 300, 300, 100, 0]
    assert await counts(world) == dict.fromkeys(TABLES, 0)
    assert (await verify(world.database)).differences == []


async def test_two_at_once_do_not_hinder_each_other(world, monkeypatch):
    monkeypatch.setattr(retention_module, "BATCH", 50)
    await make_works(world.database, 400)

    async def clean_all() -> None:
        clean = cleaner(world, clock=ClockAhead(days=31))
        while await world.value("SELECT count(*) FROM dispatcher.work_queue"):
            await clean.run_once()

    await asyncio.gather(clean_all(), clean_all())
    assert await counts(world) == dict.fromkeys(TABLES, 0)


async def test_event_ids_of_leases_that_never_were_are_forgotten(world):
    await world.value(
        "INSERT INTO dispatcher.inbox SELECT gen_random_uuid(), 'e' || n,"
        " now() - n * interval '1 day' FROM generate_series(1, 60) AS n"
    )
    await world.value(
        "INSERT INTO dispatcher.history (event_id, type, subject, source, occurred_at, data,"
        " accepted, refusal, recorded_at) SELECT 'e' || n, 't', 's', 'o', now(), '{}', false,"
        " 'unknown_lease', now() FROM generate_series(1, 60) AS n"
    )
    await cleaner(world).run_once()
    assert await world.value("SELECT count(*) FROM dispatcher.inbox") == 29


@pytest.mark.breaks_tables("tombstones of a manifest that the scheduler does not know")
async def test_pruned_work_needs_no_snapshot(stopped):
    manifest = await stopped.value(
        "SELECT manifest_id FROM dispatcher.work_queue WHERE job = 'patient'"
    )
    for type_ in ("headway.manifest.pruned.v1", "headway.prune.confirmed.v1"):
        await stopped.value(
            "INSERT INTO dispatcher.history (event_id, type, subject, source, occurred_at, data,"
            " accepted, recorded_at) VALUES ('p', $2, 'm', 's', now(),"
            " jsonb_build_object('manifest_id', $1::uuid), true, now())",
            manifest,
            type_,
        )
    for table in ("metadata", "work_queue"):
        await stopped.value(f"DELETE FROM dispatcher.{table} WHERE manifest_id = $1", manifest)
    assert (await verify(stopped.database)).differences == []
    await move_into_past(stopped, 40)
    assert (await cleaner(stopped).run_once()).snapshots == 2
    assert (await verify(stopped.database)).differences == []


async def test_workers_that_crashed_are_gone_and_after_a_time_forgotten(world):
    await world.dispatcher(worker_days=7, clean_up_seconds=0.2)
    await world.worker(App("test"), worker_name="alive")
    await world.until("SELECT count(*) FROM dispatcher.worker WHERE name = 'alive'")
    for name, days in (("crashed-lately", 6), ("crashed-long-ago", 8)):
        await world.value(
            "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, jobs, slots,"
            " draining, first_heard_at, last_heard_at)"
            " VALUES ($1, '', '', '', '', '{}', 1, false, $2, $2)",
            name,
            utc_now() - timedelta(days=days),
        )
    await world.until("SELECT count(*) = 2 FROM dispatcher.worker")
    rows = await world.rows("SELECT name, gone FROM dispatcher.worker ORDER BY name")
    assert [tuple(row) for row in rows] == [("alive", False), ("crashed-lately", True)]
    # A worker that sends a heartbeat again is alive.
    await world.worker(App("test"), worker_name="crashed-lately")
    await world.until("SELECT NOT gone FROM dispatcher.worker WHERE name = 'crashed-lately'")


async def test_rejected_messages_are_kept_for_a_time(world):
    for schema in ("scheduler", "dispatcher"):
        await world.value(
            f"INSERT INTO {schema}.rejected (subject, headers, body, reason, rejected_at)"
            " SELECT days::text, '{}', '', 'test', clock_timestamp() - days * interval '1 day'"
            " FROM unnest(ARRAY[1, 29, 31]) AS days"
        )
    await world.dispatcher(rejected_days=30, clean_up_seconds=0.2)
    await world.scheduler(rejected_days=30, clean_up_seconds=0.2)
    for schema in ("scheduler", "dispatcher"):
        kept = f"SELECT array_agg(subject ORDER BY id) = ARRAY['1', '29'] FROM {schema}.rejected"
        await world.until(kept)
