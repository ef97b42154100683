"""The scenarios: enqueue work, drain a queue, single triggers, a burst of fires."""

import statistics
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway import once
from headway_clock import monotonic, utc_now
from headway_contract import Event, decode, subjects
from headway_contract.settled import WorkSettled
from headway_jetstream_kit import Broker

from headway_cli.bench.counters import cost
from headway_cli.bench.measured_app import TRIGGERED
from headway_cli.bench.servers import Bench, queries
from headway_cli.serve.running import PartEnded

Figures = dict[str, Any]
Scenario = Callable[[Bench, int], Awaitable[Figures]]

_ONE_BY_ONE = 500
_AT_ONCE = 500
_WITHIN_SECONDS = 300.0


async def enqueue(bench: Bench, work: int) -> Figures:
    """Enqueue work by SQL, one by one and then 500 in a transaction, until all is queued."""
    before = await bench.counters.read()
    single = min(_ONE_BY_ONE, work // 2)
    async with bench.database.acquire() as connection:
        began = monotonic()
        for _ in range(single):
            await connection.execute(queries["enqueue"], 1)
        one_by_one = monotonic() - began
        for start in range(single, work, _AT_ONCE):
            await connection.execute(queries["enqueue"], min(_AT_ONCE, work - start))
        together = monotonic() - began - one_by_one

    async def queued() -> bool:
        return await bench.count(queries["waiting"]) >= work

    await bench.until(queued, what="all work to reach the queue", within=_WITHIN_SECONDS)
    seconds = monotonic() - began
    after = await bench.counters.read()
    return {
        "work": work,
        "one_by_one_per_second": round(single / one_by_one),
        "together_per_second": round((work - single) / together),
        "queued_seconds": round(seconds, 2),
        "queued_per_second": round(work / seconds),
        "cost_each": cost(before, after, runs=work),
    }


async def drain(bench: Bench, work: int) -> Figures:
    """Drain a full queue by a worker; the rate counts from the first body until all is settled."""
    if await bench.count(queries["waiting"]) < work:
        await enqueue(bench, work)
    before = await bench.counters.read()
    began = utc_now()
    await bench.start_worker()
    await bench.until(_all_settled(bench), what="all work to settle", within=_WITHIN_SECONDS)
    settled = utc_now()
    after = await bench.counters.read()
    async with bench.database.acquire() as connection:
        first: datetime = await connection.fetchval(queries["first_start"], began)
    seconds = (settled - first).total_seconds()
    return {
        "runs": work,
        "seconds": round(seconds, 2),
        "per_second": round(work / seconds),
        "cost_each": cost(before, after, runs=work),
    }


async def latency(bench: Bench, work: int) -> Figures:
    """Trigger manifests one after the other on an idle system."""
    settled: dict[UUID, float] = {}
    sent: dict[UUID, tuple[float, Any]] = {}
    broker = await Broker.connect(bench.nats_url, name="headway-bench-ear")

    async def hear(message: Any) -> None:
        for event in decode(message.data):
            if isinstance(event, Event) and isinstance(event.data, WorkSettled):
                settled[event.data.work] = monotonic()

    try:
        await broker.client.subscribe(subjects.SETTLED_SUBJECTS, cb=hear)
        for number in range(min(TRIGGERED, work)):
            moment = (monotonic(), utc_now())
            triggered = (await bench.client.trigger(f"ask-{number}")).work
            if triggered is None:
                raise PartEnded(f"the trigger of ask-{number} made no work")
            sent[triggered] = moment
            heard = _heard(settled, triggered)
            await bench.until(heard, what="a trigger to settle", within=_WITHIN_SECONDS)
    finally:
        await broker.close()
    async with bench.database.acquire() as connection:
        rows = await connection.fetch(queries["started"], list(sent))
    starts = [(row["started_at"] - sent[row["work_id"]][1]).total_seconds() for row in rows]
    ends = [settled[work_id] - began for work_id, (began, _) in sent.items()]
    return {
        "triggers": len(sent),
        "to_start_ms": _quantiles(starts),
        "to_settled_ms": _quantiles(ends),
    }


async def burst(bench: Bench, work: int) -> Figures:
    """Let all manifests be due in the same second."""
    due_at = (utc_now() + timedelta(seconds=5 + work / 500)).replace(microsecond=0)
    when = once(due_at.replace(tzinfo=None), tz="UTC")
    await bench.client.schedule_many(
        "burst", job="nothing", items=range(work), key=str, when=when, group="bench"
    )
    if utc_now() >= due_at:
        raise PartEnded("declaring took longer than planned: try less work")
    before = await bench.counters.read()

    async def due() -> bool:
        return utc_now() >= due_at

    await bench.until(due, what="the due time", within=_WITHIN_SECONDS)
    began = monotonic()
    await bench.until(_all_fired(bench, due_at), what="all to fire", within=_WITHIN_SECONDS)
    await bench.until(_all_settled(bench), what="all work to settle", within=_WITHIN_SECONDS)
    seconds = monotonic() - began
    after = await bench.counters.read()
    async with bench.database.acquire() as connection:
        row = await connection.fetchrow(queries["burst"], due_at)
    assert row is not None  # noqa: S101 - a select of aggregates has one row
    return {
        "due_at_once": work,
        "decided_seconds": round(row["decided_seconds"], 2),
        "decided_per_second": round(work / row["decided_seconds"]),
        "settled_seconds": round(seconds, 2),
        "settled_per_second": round(work / seconds),
        "to_start_seconds": {"p50": round(row["start_p50"], 2), "p99": round(row["start_p99"], 2)},
        "cost_each": cost(before, after, runs=work),
    }


SCENARIOS: dict[str, Scenario] = {
    "enqueue": enqueue,
    "drain": drain,
    "latency": latency,
    "burst": burst,
}


def _all_settled(bench: Bench) -> Callable[[], Awaitable[bool]]:
    async def settled() -> bool:
        return not await bench.holds(queries["outstanding"])

    return settled


def _all_fired(bench: Bench, due_at: datetime) -> Callable[[], Awaitable[bool]]:
    async def fired() -> bool:
        return not await bench.holds(queries["due"], due_at)

    return fired


def _heard(settled: dict[UUID, float], work: UUID) -> Callable[[], Awaitable[bool]]:
    async def heard() -> bool:
        return work in settled

    return heard


def _quantiles(seconds: list[float]) -> dict[str, float]:
    """Compute the median and the 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50": round(statistics.median(ordered) * 1000, 1),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000, 1),
    }
