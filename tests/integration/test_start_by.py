"""Expiry by `start_by` of work whose order is published but unclaimed."""

from datetime import timedelta

import pytest
import pytest_asyncio
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.lifecycle import LeaseClaimed, LeaseRevoked
from headway_dispatcher.gate.gate import Gate
from headway_dispatcher.history.verify import verify
from headway_dispatcher.runs.fencing import withdraw_expired
from headway_dispatcher.runs.leases import last_stored
from headway_dispatcher.runs.settle import EXPIRED
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wakeups import Wakeups
from headway_jetstream_kit import Stored
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish
from headway_service_kit.passes import Wakeup
from support.batches import order, queue_many
from support.gates import Gates, SetClock, work
from support.letters import Ops
from support.world import until

HOUR = timedelta(hours=1)


@pytest.fixture
def clock():
    return SetClock(utc_now())


@pytest_asyncio.fixture
async def ops(world, clock):
    """Return a worker with one slot that stays busy until released, and a settable clock."""
    made = Ops(world, None)
    made.mended.set()
    made.hold.clear()
    yield made
    made.hold.set()


async def advance_clock(world, clock, *, by: timedelta) -> None:
    clock.at += by
    for service in world.services:
        service.wake("expiry")


async def until_no_orders(world):
    async def withdrawn():
        info = await stream_info(world.broker, subjects.RUNS_STREAM)
        return info["state"]["messages"] == 0

    await until(withdrawn, within=10, what="no order is left to claim")


async def test_an_order_that_lies_ready_for_a_busy_worker_expires(world, clock, ops):
    await world.dispatcher(clock=clock)
    await world.worker(ops.app, worker_slots=1)
    first = await ops.queue(start_by=clock.at + HOUR)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    second = await ops.queue(start_by=clock.at + HOUR)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'pending'")
    await advance_clock(world, clock, by=HOUR)
    await ops.until_outcome(second, "expired")
    await until_no_orders(world)
    ops.hold.set()
    await ops.until_outcome(first, "completed")
    assert len(ops.inputs) == 1, "expired work has not begun"
    row = await ops.row(second)
    assert (row["runs"], row["attempts"]) == (1, 0)
    [run] = await world.rows("SELECT * FROM dispatcher.run WHERE work_id = $1", second)
    assert (run["state"], run["cancel_reason"], run["started_at"]) == ("cancelled", EXPIRED, None)
    [row] = await world.rows(
        "SELECT data FROM dispatcher.history WHERE work_id = $1 AND type LIKE '%settled%'", second
    )
    assert (row["data"]["outcome"], row["data"]["reason"]) == ("expired", EXPIRED)
    assert (await verify(world.database)).differences == []


async def test_the_gate_wakes_the_expiry_pass_for_an_order_with_start_by(database, clock):
    """The gate wakes the expiry pass, so that expiry does not wait for a poll."""

    class CountingWakeup(Wakeup):
        calls = 0

        def call(self) -> None:
            self.calls += 1

    wakeup = CountingWakeup()
    gates = Gates(database, clock=clock)
    gate = Gate(database, gates.settings, Wakeups(expiry=wakeup))
    await gates.worker("etl")
    await gates.queue(work(queued_at=clock.at))
    assert ((await gate.run_once()).admitted, wakeup.calls) == (1, 0)
    await gates.queue(work(queued_at=clock.at, start_by=clock.at + HOUR))
    assert ((await gate.run_once()).admitted, wakeup.calls) == (1, 1)


async def test_others_of_the_same_order_are_ordered_anew(world, clock, ops):
    await world.dispatcher(clock=clock)
    [late] = await queue_many(world, 1, start_by=clock.at + HOUR)
    others = await queue_many(world, 2)
    made = await order(world, [others[0], late, others[1]])
    await advance_clock(world, clock, by=HOUR)
    await ops.until_outcome(late, "expired")
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue WHERE state = 'waiting'")
    rows = await world.rows(
        "SELECT work_id, state, failure ->> 'kind' AS kind FROM dispatcher.run WHERE lease_id = $1",
        made.lease,
    )
    assert {tuple(row.values()) for row in rows} == {
        (others[0], "failed", "recalled"),
        (late, "cancelled", None),
        (others[1], "failed", "recalled"),
    }
    await until_no_orders(world)
    assert (await verify(world.database)).differences == []


class TestTheFence:
    @pytest_asyncio.fixture
    async def lease(self, world, clock):
        """Return a lease whose work must begin within the hour; no worker has received it."""
        await world.provision()
        gates = Gates(world.database, clock=clock)
        await gates.worker("etl")
        await gates.queue(work(start_by=clock.at + HOUR))
        assert await gates.drain() == 1
        [row] = await gates.rows("SELECT id, token FROM dispatcher.lease")
        return row

    async def expire(self, world):
        settings = DispatcherSettings(database_url="", nats_url="")
        return await withdraw_expired(world.database, world.broker, settings, "d1")

    async def test_the_order_is_withdrawn_at_its_time_and_not_before(self, world, clock, lease):
        assert await self.expire(world) == HOUR.total_seconds()
        assert await last_stored(world.broker, lease["id"]) is None
        clock.at += HOUR
        assert await self.expire(world) is None
        stored = await last_stored(world.broker, lease["id"])
        assert isinstance(stored.events[0].data, LeaseRevoked)
        assert [event.data.reason for event in stored.events] == ["expired", EXPIRED]

    async def test_a_claim_in_time_counts_although_it_is_not_projected_yet(
        self, world, clock, lease
    ):
        claim = event(
            LeaseClaimed(lease=lease["id"], token=lease["token"], nonce="n"),
            id="claim",
            source="worker/w1",
            subject=lease["id"],
            time=utc_now(),
        )
        answer = await publish(
            world.broker,
            subjects.event(lease["id"], "w1"),
            encode([claim]),
            headers=subjects.fence(lease["id"], 0),
        )
        assert isinstance(answer, Stored)
        clock.at += HOUR
        assert await self.expire(world) == 0.5, "the claim is projected later"
        assert (await last_stored(world.broker, lease["id"])).worker == "w1"

    async def test_a_lease_that_a_worker_lists_is_left_alone(self, world, clock, lease):
        await world.value("UPDATE dispatcher.lease SET listed_at = clock_timestamp()")
        clock.at += HOUR
        assert await self.expire(world) is None
        assert await last_stored(world.broker, lease["id"]) is None

    async def test_a_lease_that_is_no_longer_listed_is_withdrawn(self, world, clock, lease):
        await world.value(
            "UPDATE dispatcher.lease SET listed_at = clock_timestamp() - interval '1 h'"
        )
        clock.at += HOUR
        await self.expire(world)
        assert isinstance(
            (await last_stored(world.broker, lease["id"])).events[0].data, LeaseRevoked
        )
