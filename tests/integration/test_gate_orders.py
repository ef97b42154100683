"""Run orders of the gate: leases with one run and with several."""

import pytest
from headway_contract.work import (
    GroupChanged,
    JobChanged,
)
from headway_decisions.capacity.packing import MOST_BYTES
from headway_dispatcher.gate import gate as gate_module
from support.gates import SECOND, START, Gates, SetClock, waiting_reasons, work

pytestmark = pytest.mark.thorough


@pytest.fixture
async def gates(database):
    """Return gates without workers: the number of worker slots decides how full leases are."""
    made = Gates(database, clock=SetClock(), max_active=100)
    await made.watch_caps()
    return made


async def test_waiting_work_is_spread_over_the_free_slots(gates):
    await gates.worker("etl", slots=4)
    await gates.tell(JobChanged(job="etl", version=1, batch=20))
    await gates.queue(*(work() for _ in range(10)))
    assert await gates.drain() == 10
    assert sorted(len(order.runs) for order in await gates.orders()) == [1, 3, 3, 3]


async def test_runs_of_a_short_job_share_an_order(gates):
    await gates.worker("etl", slots=2)
    await gates.worker("mail", slots=1, name="other")
    await gates.tell(JobChanged(job="etl", version=1, batch=3))
    works = [work(queued_at=START + n * SECOND, input={"n": n}) for n in range(5)]
    await gates.queue(*works, work(job="mail"))
    assert await gates.drain() == 6
    orders = await gates.orders()
    shared = [[run.input["n"] for run in order.runs] for order in orders if order.job == "etl"]
    assert sorted(shared) == [[0, 1, 2], [3, 4]]
    assert [len(order.runs) for order in orders if order.job == "mail"] == [1]
    runs = [run for order in orders for run in order.runs]
    assert len({run.run for run in runs}) == 6
    assert {run.work for run in runs} >= {queued.work for queued in works}
    assert await gates.value(
        "SELECT bool_and(history.lease_id = metadata.lease_id AND history.run_id IS NOT NULL)"
        " AND count(*) = 6 FROM dispatcher.history_event AS history"
        " JOIN dispatcher.run AS metadata USING (run_id)"
    )


async def test_an_order_is_not_older_than_its_work(database, monkeypatch):
    """Work may become ready after the gate has counted and before it locks candidates."""
    gates = Gates(database)
    await gates.worker("etl")
    read_situation = gate_module.read_situation

    async def read_and_queue(*arguments):
        situation = await read_situation(*arguments)
        await gates.queue(work())
        return situation

    monkeypatch.setattr(gate_module, "read_situation", read_and_queue)
    gates.wake.gate.call(has_work=True)
    assert (await gates.run()).admitted == 1
    [[is_later]] = await gates.rows(
        "SELECT ordered_at >= received_at FROM dispatcher.lease, dispatcher.work_queue"
    )
    assert is_later


async def test_a_lease_counts_once_however_many_runs_it_has(gates):
    await gates.worker("etl", slots=10)
    await gates.tell(
        JobChanged(job="etl", version=1, batch=5, max_active=7),
        GroupChanged(group="etl", version=1, max_active=4),
    )
    await gates.queue(*(work() for _ in range(30)))
    assert await gates.drain() == 20
    assert [len(order.runs) for order in await gates.orders()] == [5, 5, 5, 5]
    await gates.end(*(run.work for order in (await gates.orders())[:1] for run in order.runs[:4]))
    assert await gates.drain() == 0, "its lease still has a run"
    await gates.end(*(run.work for order in (await gates.orders())[:1] for run in order.runs))
    assert await gates.drain() == 5


async def test_work_that_is_to_run_alone_does(gates):
    await gates.worker("etl", slots=1)
    await gates.tell(JobChanged(job="etl", version=1, batch=10))
    suspects = await gates.queue(work(), work())
    await gates.drain()
    await gates.end(failure="orphaned")
    await gates.worker("etl", slots=1, name="other")
    await gates.queue(work(), work(), work())
    await gates.drain()
    shared = [{run.work for run in order.runs} for order in await gates.orders()]
    assert sorted(map(len, shared)) == [1, 1, 2, 3]
    assert all({suspect} in shared for suspect in suspects)


async def test_inputs_of_an_order_are_bounded_by_bytes(gates):
    await gates.worker("etl", slots=2)
    await gates.tell(JobChanged(job="etl", version=1, batch=10))
    large = "x" * (MOST_BYTES // 3)
    await gates.queue(*(work(input=large) for _ in range(5)))
    await gates.drain()
    orders = await gates.orders()
    assert sorted(len(order.runs) for order in orders) == [1, 2, 2]


async def test_a_worker_slot_takes_a_lease_of_many_runs(gates):
    await gates.worker("etl", slots=1)
    await gates.tell(JobChanged(job="etl", version=1, batch=10))
    await gates.queue(*(work() for _ in range(50)))
    assert await gates.drain() == 20  # its slot and one spare lease
    assert [len(order.runs) for order in await gates.orders()] == [10, 10]
    assert await waiting_reasons(gates) == ["workers_full"] * 30
