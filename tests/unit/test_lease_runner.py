"""The cost of a lease in the worker, and what its bodies see of each other."""

import asyncio
from collections import Counter
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from headway import App
from headway.worker import Worker, WorkerSettings, leases
from headway_clock import new_id
from headway_contract import Event, decode
from headway_contract.lifecycle import RunFailed, RunsCompleted
from headway_contract.orders import OrderedRun, RunDispatched
from headway_jetstream_kit import Message

ORDER = Message(
    subject="order", body=b"", headers={}, sequence=1, deliveries=1, pending=0, reply="reply"
)


class FakeBroker:
    """A broker that stores every message."""

    def __init__(self) -> None:
        self.client = self
        self.closed = asyncio.Event()
        self.max_payload = 1024**2
        self.stored: list[list[Event]] = []
        self.acks = 0

    async def request(self, subject: str, body: bytes, **_: Any) -> SimpleNamespace:
        self.stored.append(decode(body))
        return SimpleNamespace(data=msgspec.json.encode({"seq": len(self.stored)}))

    async def publish(self, subject: str, body: bytes) -> None:
        self.acks += 1


async def run_lease(body, runs: int, **terms: Any) -> tuple[FakeBroker, list[Any]]:
    """Let a worker run a lease; return the broker, and what its metrics were told."""
    app, broker, ended = App("test"), FakeBroker(), []
    app.job("job")(body)
    worker = Worker(app, broker, WorkerSettings())
    worker.on_ended = lambda *given: ended.append(given)
    ordered = [
        OrderedRun(
            run=new_id(), work=new_id(), attempt=1, attempts=1, group="job", cause="x", **terms
        )
        for _ in range(runs)
    ]
    order = RunDispatched(lease=new_id(), token="t", job="job", runs=ordered)
    await worker._work(ORDER, order)
    return broker, ended


def completed_in(broker: FakeBroker) -> list[Any]:
    data = [event.data for events in broker.stored for event in events]
    return [run for part in data if isinstance(part, RunsCompleted) for run in part.runs]


async def test_a_lease_of_short_runs_costs_a_claim_an_ack_and_a_message(monkeypatch):
    # On a busy machine the lease may take longer than the linger.
    monkeypatch.setattr(leases, "LINGER_SECONDS", 3600.0)
    loop, timers = asyncio.get_running_loop(), Counter()

    def call_at(when, callback, *arguments, **options):
        timers[callback.__name__] += 1
        return asyncio.BaseEventLoop.call_at(loop, when, callback, *arguments, **options)

    monkeypatch.setattr(loop, "call_at", call_at)

    async def body(ctx): ...

    broker, ended = await run_lease(body, 100)
    assert [len(events) for events in broker.stored] == [1, 1]
    assert (broker.acks, len(completed_in(broker)), len(ended)) == (1, 100, 100)
    assert timers.total() <= 2, "timers belong to the lease, not to its runs"


async def test_a_body_has_a_task_and_a_context_of_its_own():
    seen: ContextVar[int] = ContextVar("seen", default=0)
    tasks, values = [], []

    async def body(ctx):
        tasks.append(asyncio.current_task())
        values.append(seen.get())
        seen.set(1)

    await run_lease(body, 3)
    assert (len(set(tasks)), values) == (3, [0, 0, 0])


async def test_a_body_that_cancels_its_task_and_returns_does_not_cancel_the_next():
    begun = []

    async def body(ctx):
        begun.append(ctx.run)
        if len(begun) == 1:
            asyncio.current_task().cancel()
        await asyncio.sleep(0)

    broker, ended = await run_lease(body, 3)
    assert [outcome for _, outcome, _ in ended] == ["failed", "completed", "completed"]
    assert [run.run for run in completed_in(broker)] == begun[1:]


async def test_timeouts_and_task_groups_work_at_the_first_step():
    async def body(ctx):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "done"))
        return task.result()

    broker, _ = await run_lease(body, 2)
    assert [run.output for run in completed_in(broker)] == ["done", "done"]


async def test_the_duration_of_a_body_begins_with_its_first_step(monkeypatch):
    """A body that keeps the event loop busy adds nothing to the duration of another."""
    clock = iter(range(1_000_000))
    monkeypatch.setattr("headway.worker.lease_runner.monotonic", lambda: float(next(clock)))

    async def body(ctx): ...

    broker, ended = await run_lease(body, 2)
    assert [run.seconds for run in completed_in(broker)] == [1.0, 1.0]
    assert [seconds for *_, seconds in ended] == [1.0, 1.0]


async def test_the_timeout_counts_a_first_step_that_blocks(monkeypatch):
    now = 0.0
    monkeypatch.setattr("headway.worker.lease_runner.monotonic", lambda: now)

    async def body(ctx):
        nonlocal now
        now += 100.0
        await asyncio.Event().wait()

    broker, _ = await run_lease(body, 2, timeout_seconds=60.0)
    data = [event.data for events in broker.stored for event in events]
    kinds = [part.failure.kind for part in data if isinstance(part, RunFailed)]
    assert kinds == ["timed_out", "timed_out"]
