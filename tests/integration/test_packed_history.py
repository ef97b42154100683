"""Packed events have no index by work: verify, rebuild and retention find each run in them."""

from datetime import timedelta
from uuid import UUID

import pytest
import pytest_asyncio
from headway_dispatcher.history import pages
from headway_dispatcher.history.rebuild import rebuild
from headway_dispatcher.history.verify import verify
from headway_dispatcher.store import HISTORY
from headway_history import StoredEvent
from support.batches import order, queue_many
from support.bodies import Bodies
from support.old_history import TABLES, ClockAhead, cleaner, counts, move_into_past
from support.tiers import first_in_each_tier
from support.world import World

DISPATCHED, COMPLETED = "headway.run.dispatched.v1", "headway.runs.completed.v1"
WORKS = 12
HISTORY_WORKS = "SELECT count(DISTINCT work_id) FROM dispatcher.history_event"


@pytest_asyncio.fixture
async def drained(world: World) -> World:
    """Return a stopped world in which three leases had four runs each, which all completed."""
    await world.serve(Bodies().app())
    works = await queue_many(world, WORKS)
    for first in range(0, WORKS, 4):
        # Not neighbours: the works of a page are in different leases.
        await order(world, works[first // 4 :: 3])
    await world.until(
        "SELECT count(*) = $1 FROM dispatcher.work_queue WHERE state = 'settled'", WORKS
    )
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    await world.stop()
    world.services.clear()
    await world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    return world


async def packed(world: World, type_: str) -> int:
    return await world.value(
        "SELECT count(*) FROM dispatcher.history WHERE type = $1 AND work_id IS NULL", type_
    )


async def two_days(world: World) -> None:
    """Move the end of all runs to the day after the day on which their work was queued."""
    await move_into_past(world, 41)
    first = await world.value("SELECT min(recorded_at)::date FROM dispatcher.history")
    await world.value("SELECT dispatcher.add_history_day($1::date + 1)", first)
    await world.value(
        "UPDATE dispatcher.history SET recorded_at = recorded_at + interval '1 day'"
        " WHERE type NOT IN ('headway.work.queued.v1', $1)",
        DISPATCHED,
    )


async def test_each_run_is_an_event_of_the_view(drained):
    assert await packed(drained, DISPATCHED) == 3
    assert await packed(drained, COMPLETED) >= 3
    rows = await drained.rows(
        "SELECT run_id, work_id, lease_id, data, event_id FROM dispatcher.history_event"
        " WHERE type = $1",
        DISPATCHED,
    )
    runs = await drained.rows("SELECT run_id, work_id, lease_id FROM dispatcher.run")
    assert {tuple(row)[:3] for row in rows} == {tuple(run) for run in runs}
    assert len({row["event_id"] for row in rows}) == WORKS
    for row in rows:
        named = {name: UUID(row["data"][name]) for name in ("run", "work", "lease")}
        assert named == {"run": row["run_id"], "work": row["work_id"], "lease": row["lease_id"]}
        assert (row["data"]["job"], row["data"]["group"]) == ("job", "ops")


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_pages_of_any_size_get_their_parts(drained, monkeypatch, size):
    monkeypatch.setattr(pages, "_WORKS", size)
    verified = await verify(drained.database)
    assert (verified.works, verified.runs, verified.differences) == (WORKS, WORKS, [])
    # Each work was queued, ordered, claimed with its lease, and completed, some with a start.
    assert verified.events >= 4 * WORKS


@pytest.mark.breaks_tables("deletes records")
@pytest.mark.parametrize("type_", first_in_each_tier([DISPATCHED, COMPLETED]))
async def test_a_missing_packed_record_is_found(drained, type_):
    lost = await drained.value(
        "DELETE FROM dispatcher.history WHERE id = (SELECT min(id) FROM dispatcher.history"
        " WHERE type = $1 AND work_id IS NULL) RETURNING data -> 'runs'",
        type_,
    )
    found = (await verify(drained.database)).differences
    runs = {difference.row for difference in found if difference.table == "metadata"}
    assert runs == {UUID(run["run"]) for run in lost}
    works = {difference.row for difference in found if difference.table == "work_queue"}
    assert works == {UUID(run["work"]) for run in lost}
    kinds = {difference.kind for difference in found if difference.table == "metadata"}
    assert kinds == {"unknown" if type_ == DISPATCHED else "different"}


@pytest.mark.thorough
@pytest.mark.breaks_tables("the lease holders are lost with their rows")
async def test_lost_rows_of_packed_leases_come_back(drained):
    for table in ("work_queue", "metadata", "lease"):
        await drained.value(f"DELETE FROM dispatcher.{table}")
    rebuilt = await rebuild(drained.database)
    assert rebuilt.added == {"work_queue": WORKS, "metadata": WORKS}
    assert rebuilt.leases_made == 3
    assert (await verify(drained.database)).differences == []


@pytest.mark.thorough
@pytest.mark.breaks_tables("moves history to other days, but not the tables")
async def test_a_day_with_only_packed_events_of_a_work_is_covered_by_a_snapshot(drained):
    await two_days(drained)
    await drained.value(
        "UPDATE dispatcher.history SET recorded_at = now() WHERE type = 'headway.work.queued.v1'"
    )
    cleaned = await cleaner(drained).run_once()
    assert (cleaned.days_dropped, cleaned.snapshots) == (2, 2 * WORKS)
    assert await packed(drained, DISPATCHED) == await packed(drained, COMPLETED) == 0
    assert (await verify(drained.database)).differences == []


@pytest.mark.breaks_tables("moves history to other days, but not the tables")
async def test_a_snapshot_of_each_day_covers_its_packed_events(drained):
    await two_days(drained)
    clean = cleaner(drained)
    first = await drained.value("SELECT min(recorded_at)::date FROM dispatcher.history")
    async with drained.database.transaction() as reader:
        # The second day cannot be dropped yet.
        await reader.execute(
            f"LOCK dispatcher.history_{first + timedelta(days=1):%Y%m%d} IN ACCESS SHARE MODE"
        )
        cleaned = await clean.run_once()
        assert (cleaned.days_dropped, cleaned.snapshots) == (1, 2 * WORKS)
    assert await packed(drained, DISPATCHED) == 0
    assert (await verify(drained.database)).differences == []
    cleaned = await clean.run_once()
    assert (cleaned.days_dropped, cleaned.snapshots) == (1, 0), "they were written before"
    assert (await verify(drained.database)).differences == []
    await drained.value("UPDATE dispatcher.metadata SET attempt = 7")
    assert (await rebuild(drained.database)).changed == {"metadata": WORKS}


@pytest.mark.thorough
async def test_deleted_work_that_outlived_a_day_stays_forgotten(drained):
    """Its first snapshot says that it is not settled, and outlives the record of its end."""
    await two_days(drained)
    clean = cleaner(drained, clock=ClockAhead(days=31))
    assert (await clean.run_once()).days_dropped == 2
    assert await counts(drained) == dict.fromkeys(TABLES, 0)
    assert (await verify(drained.database)).differences == []
    # The records of the deletion and the snapshots are dropped in the order of their days.
    await move_into_past(drained, 40)
    await drained.value(
        "UPDATE dispatcher.history SET recorded_at = now()"
        " WHERE type = 'headway.history.snapshot.v1'"
    )
    assert (await clean.run_once()).days_dropped == 1
    assert await drained.value(HISTORY_WORKS) == WORKS
    assert (await verify(drained.database)).differences == []
    await move_into_past(drained, 40)
    assert (await clean.run_once()).snapshots == 0
    assert await drained.value(HISTORY_WORKS) == 0


async def test_parts_are_read_in_the_order_of_their_work_and_fields(drained):
    rows = await drained.rows(HISTORY._queries["packed"], None, None)
    assert tuple(rows[0].keys()) == StoredEvent.__struct_fields__
    works = [row["work"] for row in rows]
    assert works == sorted(works)
    first = min(row["id"] for row in rows)
    assert len(await drained.rows(HISTORY._queries["packed"], None, first)) == 4
    some = sorted(set(works))[:2]
    rows = await drained.rows(HISTORY._queries["packed"], some, None)
    assert [row["work"] for row in rows] == [work for work in works if work in some]
