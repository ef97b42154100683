"""Reconciliation of run orders: only lost orders are published again."""

import asyncio

import pytest
from headway import App
from headway_contract import subjects
from support.apps import nightly
from support.cadences import when_made_due
from support.healing import purge
from support.invariants import check_invariants
from support.world import until


@pytest.fixture
def app():
    return nightly()


class TestOrders:
    async def test_an_order_that_is_gone_is_put_back_and_counted(self, world, app):
        await world.dispatcher()
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        # A worker serves the job but takes no order, so the lease stays unclaimed.
        await world.beat("idle")
        await world.until("SELECT count(*) FROM dispatcher.lease")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.RUNS_STREAM)
        await world.worker(app)
        await world.until_settled()
        [row] = await world.rows("SELECT state, reissued, attempt FROM dispatcher.run")
        assert tuple(row) == ("completed", 1, 1)
        await check_invariants(world.database)

    @pytest.mark.thorough
    async def test_an_order_that_a_heartbeat_lists_is_not_put_back(self, world, app):
        await world.dispatcher(orphan_timeout_seconds=3.0)
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")

        async def stored() -> int:
            info = await world.broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}")
            return info["state"]["messages"]

        await world.beat("w")
        lease = await world.until("SELECT id FROM dispatcher.lease")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await world.beat("w", leases=[lease])
        await purge(world, subjects.RUNS_STREAM)
        for _ in range(20):
            await world.beat("w", leases=[lease])
            await asyncio.sleep(0.2)
            assert await stored() == 0
        # After the orphan timeout without a heartbeat that lists it, it may be published again.
        await until(stored, within=10, what="the order is back")
        await world.until("SELECT reissued = 1 FROM dispatcher.run")

    @pytest.mark.thorough
    async def test_publishing_an_order_that_is_still_stored_has_no_effect(self, world, app):
        await world.dispatcher()
        await world.fire(app)
        await world.until("SELECT count(*) FROM dispatcher.work_queue")
        await world.beat("idle")
        await world.until("SELECT count(*) FROM dispatcher.lease")
        dispatcher = world.services[0]
        for _ in range(8):
            dispatcher.wake("orders")
            await asyncio.sleep(0.3)
        info = await world.broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}")
        assert info["state"]["messages"] == 1
        assert await world.value("SELECT reissued FROM dispatcher.run") == 0

    async def test_a_worker_republishes_a_lost_outcome_and_runs_nothing_twice(self, world):
        app = App("test")
        begun = []

        @app.job("job", group="ops")
        @when_made_due()
        async def job(ctx):
            begun.append(ctx.run)
            return "once"

        dispatcher = await world.dispatcher(orphan_timeout_seconds=3)
        await dispatcher.end_pass("projector")
        worker = await world.worker(app)
        await world.fire(app)
        await until(lambda: _finished(worker), within=10, what="the run has ended")
        # Only the second dispatcher may publish the order again.
        await dispatcher.end_pass("orders")
        for stream in (subjects.EVENTS_STREAM, subjects.RUNS_STREAM):
            await world.broker.api(f"STREAM.DELETE.{stream}")
        await world.dispatcher(orphan_timeout_seconds=3)
        await world.until_settled(within=30)
        [row] = await world.rows("SELECT state, output, reissued FROM dispatcher.run")
        assert tuple(row) == ("completed", "once", 1)
        assert len(begun) == 1
        await check_invariants(world.database)


async def _finished(worker) -> bool:
    return bool(worker._finished)
