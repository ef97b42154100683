"""Days of history are made ahead, and dropped once a snapshot has the work that outlives them."""

from datetime import UTC, date, datetime, timedelta

import pytest
import pytest_asyncio
from headway import App
from headway_dispatcher.history.verify import verify
from headway_dispatcher.letters.letters import purge_letters
from support.cadences import when_made_due
from support.letters import Ops
from support.old_history import (
    ClockAhead,
    cleaner,
    counts,
    known_days,
    move_into_past,
    run_and_stop,
)
from support.world import World

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def stopped(world: World) -> World:
    return await run_and_stop(world)


@pytest.mark.breaks_tables("moves history to another day, but not the tables")
async def test_a_day_is_dropped_once_a_snapshot_has_the_work_that_outlives_it(stopped):
    await move_into_past(stopped, 40)
    assert (await verify(stopped.database)).differences == []
    old: date = await stopped.value("SELECT min(recorded_at)::date FROM dispatcher.history")
    assert old in await known_days(stopped)
    cleaned = await cleaner(stopped).run_once()
    assert (cleaned.days_dropped, cleaned.snapshots, cleaned.works) == (1, 3, 0)
    assert old not in await known_days(stopped)
    assert await stopped.value("SELECT array_agg(DISTINCT type) FROM dispatcher.history") == [
        "headway.history.snapshot.v1"
    ]
    assert (await verify(stopped.database)).differences == []
    assert (await cleaner(stopped).run_once()).snapshots == 0, "the second pass does nothing"


@pytest.mark.breaks_tables("moves history to another day, but not the tables")
async def test_a_snapshot_leaves_out_dead_letters_that_were_forgotten(world, client):
    """The day with their deletion is dropped, so the snapshot would keep them for ever."""
    ops = Ops(world, client)
    await world.serve(ops.app)
    _, letter = await ops.letter()
    await client.retry(letter)
    await world.until("SELECT count(*) = 2 FROM dispatcher.dead_letter")
    await world.stop()
    world.services.clear()
    await move_into_past(world, 31)
    assert (await cleaner(world).run_once()).snapshots == 1, "the snapshot has both letters"
    world.database.clock = ClockAhead(days=31)
    await purge_letters(world.database, days=30)
    assert (await counts(world))["dead_letter"] == 1, "the unresolved letter"
    await move_into_past(world, 40)
    cleaned = await cleaner(world).run_once()
    assert (cleaned.days_dropped, cleaned.snapshots) == (1, 1)
    assert (await verify(world.database)).differences == []


@pytest.mark.breaks_tables("moves history to another day and corrupts a row")
async def test_a_snapshot_does_not_make_a_corruption_true(stopped):
    await stopped.value("UPDATE dispatcher.metadata SET worker = 'forged' WHERE job = 'patient'")
    await move_into_past(stopped, 40)
    await cleaner(stopped).run_once()
    [found] = (await verify(stopped.database)).differences
    assert (found.column, found.found) == ("worker", "forged")


@pytest.mark.breaks_tables("moves history to another day")
async def test_work_goes_on_after_the_day_it_began_on_was_dropped(stopped):
    await move_into_past(stopped, 40)
    await cleaner(stopped).run_once()
    app = App("old")

    @app.job("patient")
    @when_made_due()
    async def patient(ctx):
        return "at last"

    await stopped.value(
        "UPDATE dispatcher.work_queue SET not_before = now() WHERE state = 'waiting'"
    )
    await stopped.dispatcher()
    await stopped.worker(app)
    await stopped.until("SELECT count(*) = 3 FROM dispatcher.work_queue WHERE state = 'settled'")
    differences = (await verify(stopped.database)).differences
    assert {difference.column for difference in differences} <= {"not_before"}, "this test moved it"
    assert (
        await stopped.value(
            "SELECT (runs, attempts, outcome)::text FROM dispatcher.work_queue WHERE job = 'patient'"
        )
        == "(2,2,completed)"
    )


async def test_days_are_made_ahead_and_what_came_too_early_is_moved_into_its_own(world):
    """The test may run over midnight, so it accepts the partitions of both days."""
    for day in await known_days(world):
        await world.value("SELECT dispatcher.drop_history_day($1)", day)
    today: date = await world.value("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date")
    # Simulate a week without a clean-up, and a clock that was ahead for a while.
    for ahead in (0, 30):
        await world.value(
            "INSERT INTO dispatcher.history (event_id, type, subject, source, occurred_at, data,"
            " accepted, recorded_at) VALUES ('e', 't', 's', 'o', now(), '{}', true,"
            " ($1::date + 0.5 * interval '1 day') AT TIME ZONE 'UTC')",
            today + timedelta(days=ahead),
        )
    early = today + timedelta(days=30)
    assert await world.value("SELECT count(*) FROM dispatcher.history_default") == 2
    assert (await cleaner(world).run_once()).days_made >= 9, "a week, today and the early one"
    made = await known_days(world)
    assert made >= {early, *(today + timedelta(days=ahead) for ahead in range(8))}
    assert await world.value("SELECT count(*) FROM dispatcher.history_default") == 0
    assert await world.value("SELECT count(*) FROM dispatcher.history") == 2
    await cleaner(world).run_once()
    assert await known_days(world) - made <= {today + timedelta(days=8)}, "unless a day has ended"


async def test_a_day_that_is_being_read_is_dropped_later(world):
    day = (datetime.now(UTC) - timedelta(days=50)).date()
    await world.value("SELECT dispatcher.add_history_day($1)", day)
    async with world.database.transaction() as reader:
        await reader.fetch("SELECT count(*) FROM dispatcher.history")
        assert (await cleaner(world).run_once()).days_dropped == 0
    assert (await cleaner(world).run_once()).days_dropped == 1


@pytest.mark.breaks_tables("moves history to other days, but not the tables")
async def test_no_day_is_dropped_while_an_earlier_one_cannot_be(stopped):
    """Otherwise work that began on the first day would seem not to have ended on the second."""
    await move_into_past(stopped, 41)
    first: date = await stopped.value("SELECT min(recorded_at)::date FROM dispatcher.history")
    await stopped.value("SELECT dispatcher.add_history_day($1)", first + timedelta(days=1))
    await stopped.value(
        "UPDATE dispatcher.history SET recorded_at = recorded_at + interval '1 day'"
        " WHERE type = 'headway.work.settled.v1'"
    )
    clean = cleaner(stopped, clock=ClockAhead(days=31))
    async with stopped.database.transaction() as reader:
        await reader.execute(f"LOCK dispatcher.history_{first:%Y%m%d} IN ACCESS SHARE MODE")
        cleaned = await clean.run_once()
        assert (cleaned.works, cleaned.days_dropped) == (1, 0)
    assert (await verify(stopped.database)).differences == []
    assert (await clean.run_once()).days_dropped == 2
    assert (await verify(stopped.database)).differences == []
