"""A rebuild while work waits and runs go on: their outcomes still count."""

import asyncio

import pytest
import pytest_asyncio
from headway import App, retry
from headway_dispatcher.history.rebuild import rebuild
from headway_dispatcher.history.verify import verify
from support.cadences import when_made_due

pytestmark = pytest.mark.thorough


async def test_work_that_was_lost_while_it_waited_runs_after_a_rebuild(world):
    app = App("verify")
    release = asyncio.Event()

    @app.job("job")
    @when_made_due()
    async def job(ctx):
        await release.wait()

    await world.dispatcher()
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'queued'")
    await world.stop()
    world.services.clear()
    await world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    await world.value("DELETE FROM dispatcher.work_queue")
    assert (await rebuild(world.database)).added == {"work_queue": 1}
    await world.dispatcher()
    await world.scheduler(app)
    await world.worker(app)
    release.set()
    await world.until_settled()


class TestARebuildUnderLiveRuns:
    """A worker continues its run while the services are down and the tables are rebuilt."""

    @pytest_asyncio.fixture
    async def running(self, world) -> asyncio.Event:
        """Start a run whose body waits for the event; stop the services."""
        app, release = App("verify"), asyncio.Event()

        @app.job("job")
        @when_made_due()
        @retry(attempts=2, interval=0.01)
        async def job(ctx):
            await release.wait()
            return ctx.attempt

        self.app = app
        await world.dispatcher(orphan_timeout_seconds=60)
        await world.worker(app)
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
        for service in world.services:
            await service.stop()
        world.services.clear()
        await world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
        return release

    async def restart_services(self, world, release: asyncio.Event, **settings) -> None:
        await world.dispatcher(**{"orphan_timeout_seconds": 60, **settings})
        await world.scheduler(self.app)
        release.set()
        await world.until_settled(within=30)

    async def test_its_outcome_counts_because_its_lease_is_still_there(self, world, running):
        await world.value("DELETE FROM dispatcher.metadata")
        rebuilt = await rebuild(world.database)
        # Without its row, the run looks as if nothing had been heard of it.
        assert (rebuilt.changed, rebuilt.leases_made) == ({"metadata": 1}, 0)
        await self.restart_services(world, running)
        [row] = await world.rows("SELECT state, attempt, output FROM dispatcher.run")
        assert tuple(row) == ("completed", 1, 1)

    async def test_a_lease_that_is_said_to_have_ended_is_open_again(self, world, running):
        await world.value("UPDATE dispatcher.lease SET ended_at = clock_timestamp()")
        [found] = (await verify(world.database)).differences
        assert (found.table, found.column, found.expected) == ("lease", "ended_at", None)
        assert (await rebuild(world.database)).changed == {"lease": 1}
        await self.restart_services(world, running)
        assert await world.value("SELECT count(*) FROM dispatcher.run") == 1

    @pytest.mark.breaks_tables("the lease holder is lost with its row")
    async def test_without_its_lease_the_work_is_tried_again(self, world, running):
        lease = await world.value("DELETE FROM dispatcher.lease RETURNING id")
        [found] = (await verify(world.database)).differences
        assert (found.table, found.row, found.kind) == ("lease", lease, "missing")
        rebuilt = await rebuild(world.database)
        assert (rebuilt.added, rebuilt.leases_made) == ({"lease": 1}, 1)
        assert (await verify(world.database)).differences == []
        await self.restart_services(
            world, running, stale_pending_seconds=1, orphan_timeout_seconds=1
        )
        rows = await world.rows("SELECT state, failure FROM dispatcher.run ORDER BY created_at")
        assert [row["state"] for row in rows] == ["failed", "completed"]
        assert rows[0]["failure"]["kind"] == "undelivered"

    async def test_wait_reasons_are_computed_again(self, world):
        app = App("verify")
        app.job("job", concurrency_key="one")(lambda ctx: None)
        app.schedule("m", job="job", when=when_made_due())
        dispatcher = await world.dispatcher()
        scheduler = await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        for service in (dispatcher, scheduler):
            world.services.remove(service)
            await service.stop()
        await world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
        await world.value(
            "UPDATE dispatcher.work_queue SET hold_reason = 'manifest_disabled', wait_reason = 'x'"
        )
        await rebuild(world.database)
        await world.dispatcher()
        await world.scheduler(app)
        await world.worker(app)
        await world.until_settled()
