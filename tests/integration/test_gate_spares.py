"""Spare orders of the gate, and leases that were claimed."""

import pytest
from headway_contract.work import (
    GroupChanged,
    JobChanged,
)
from support.gates import SECOND, START, Gates, waiting_reasons, work

pytestmark = pytest.mark.thorough


class TestSpares:
    """A worker gets one spare order beyond its slots, unless an idle worker needs the room."""

    @pytest.mark.parametrize(("cap", "spares"), [(2, 0), (3, 1)])
    async def test_a_spare_order_does_not_take_room_from_an_idle_worker(
        self, database, clock, cap, spares
    ):
        gates = Gates(database, clock=clock, max_active=cap)
        await gates.worker("etl", slots=1, name="busy")
        await gates.worker("mail", slots=1, name="idle")
        await gates.queue(*(work() for _ in range(3)))
        assert await gates.drain() == 1 + spares
        [mail] = await gates.queue(work(job="mail"))
        assert await gates.drain() == 1
        assert mail in await gates.active()

    async def test_work_with_a_key_gets_a_slot_or_waits_for_one(self, database, clock):
        gates = Gates(database, clock=clock)
        await gates.worker("etl", slots=1)
        await gates.queue(work(), work(concurrency_key="k", queued_at=START + SECOND))
        assert await gates.drain() == 1
        assert await waiting_reasons(gates) == ["workers_full"]
        await gates.end()
        assert await gates.drain() == 1

    async def test_work_with_keys_that_waits_for_slots_keeps_no_idle_worker_waiting(
        self, database, clock
    ):
        gates = Gates(database, clock=clock, max_active=1000, gate_batch=20)
        for name in ("a", "b"):
            await gates.worker("etl", slots=1, name=name)
        await gates.worker("mail", slots=1, name="idle")
        await gates.tell(JobChanged(job="etl", version=1, batch=10))
        await gates.queue(*(work(concurrency_key=f"k{n}") for n in range(60)))
        assert await gates.drain() == 20, "two slots of leases and no spare orders"
        [mail] = await gates.queue(work(job="mail", queued_at=START + SECOND))
        assert await gates.drain() == 1
        assert mail in await gates.active()

    async def test_claimed_leases_are_distinguished_from_spare_orders(self, database, clock):
        gates = Gates(database, clock=clock)
        await gates.worker("etl", slots=1, name="busy")
        await gates.worker("etl", "mail", slots=1, name="idle")
        await gates.queue(work())
        await gates.drain()
        await gates.execute(
            "UPDATE dispatcher.lease SET claimed_by = 'idle', nonce = 'idle', last_heard_at = now()"
        )
        await gates.queue(work(job="mail", concurrency_key="k"))
        assert await gates.drain() == 0, (
            "the worker that serves the job is busy, although another is idle"
        )

    @pytest.mark.parametrize("why", ["key", "group"])
    async def test_work_that_gets_no_spare_order_does_not_displace_other_candidates(
        self, database, clock, why
    ):
        gates = Gates(database, clock=clock, gate_batch=2)
        for name in ("busy", "busy too"):
            await gates.worker("etl", slots=1, name=name)
        await gates.worker("mail", slots=1, name="idle")
        await gates.tell(*(GroupChanged(group=f"g{n}", version=1, max_active=1) for n in range(3)))
        await gates.queue(work(concurrency_key="one"), work(concurrency_key="two"))
        assert await gates.drain() == 2
        if why == "key":
            await gates.queue(*(work(concurrency_key=f"k{n}") for n in range(3)))
        else:
            await gates.queue(*(work(group=f"g{n}") for n in range(3)))
        [mail] = await gates.queue(work(job="mail", queued_at=START + SECOND))
        assert await gates.drain() == 1
        assert mail in await gates.active()

    async def test_a_lease_with_runs_of_two_groups_takes_one_slot(self, database, clock):
        gates = Gates(database, clock=clock)
        await gates.worker("etl", slots=1)
        await gates.tell(JobChanged(job="etl", version=1, batch=2))
        await gates.queue(work(group="a"), work(group="b"))
        assert await gates.drain() == 2
        await gates.worker("etl", slots=1, name="idle")
        await gates.queue(work(concurrency_key="k"))
        assert await gates.drain() == 1
