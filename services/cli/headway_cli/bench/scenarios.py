"""What is measured: putting work in, getting it done, one trigger, and a burst of fires."""

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
from headway_cli.bench.measured_app import ASKED
from headway_cli.bench.servers import Ground, queries
from headway_cli.up.worker_process import PartEnded

Figures = dict[str, Any]
Scenario = Callable[[Ground, int], Awaitable[Figures]]

_ONE_BY_ONE = 500
_AT_ONCE = 500
_WITHIN_SECONDS = 300.0


async def enqueue(ground: Ground, work: int) -> Figures:
    """Work from SQL: committed one by one, then in transactions of 500, until all is queued."""
    before = await ground.counters.read()
    single = min(_ONE_BY_ONE, work // 2)
    async with ground.database.acquire() as connection:
        began = monotonic()
        for _ in range(single):
            await connection.execute(queries["enqueue"], 1)
        one_by_one = monotonic() - began
        began = monotonic()
        for start in range(single, work, _AT_ONCE):
            await connection.execute(queries["enqueue"], min(_AT_ONCE, work - start))
        together = monotonic() - began

    async def queued() -> bool:
        return await ground.count(queries["waiting"]) >= work

    await ground.until(queued, what="all work to reach the queue", within=_WITHIN_SECONDS)
    after = await ground.counters.read()
    return {
        "work": work,
        "one_by_one_per_second": round(single / one_by_one),
        "together_per_second": round((work - single) / together),
        "queued_seconds": round(after.at - before.at, 2),
        "queued_per_second": round(work / (after.at - before.at)),
        "cost_each": cost(before, after, runs=work),
    }


async def drain(ground: Ground, work: int) -> Figures:
    """All work waits; a worker comes, and all of it is run, settled and known to be."""
    if await ground.count(queries["waiting"]) < work:
        await enqueue(ground, work)
    before = await ground.counters.read()
    await ground.start_worker()
    began = monotonic()
    await ground.until(_all_settled(ground), what="all work to settle", within=_WITHIN_SECONDS)
    seconds = monotonic() - began
    after = await ground.counters.read()
    return {
        "runs": work,
        "seconds": round(seconds, 2),
        "per_second": round(work / seconds),
        "cost_each": cost(before, after, runs=work),
    }


async def latency(ground: Ground, work: int) -> Figures:
    """One trigger after the other on an idle system: how long until the body begins."""
    settled: dict[UUID, float] = {}
    asked: dict[UUID, tuple[float, Any]] = {}
    broker = await Broker.connect(ground.nats_url, name="headway-bench-ear")

    async def hear(message: Any) -> None:
        for event in decode(message.data):
            if isinstance(event, Event) and isinstance(event.data, WorkSettled):
                settled[event.data.work] = monotonic()

    try:
        await broker.client.subscribe(subjects.SETTLED_SUBJECTS, cb=hear)
        for number in range(min(ASKED, work)):
            moment = (monotonic(), utc_now())
            triggered = (await ground.client.trigger(f"ask-{number}")).work
            if triggered is None:
                raise PartEnded(f"the trigger of ask-{number} made no work")
            asked[triggered] = moment
            heard = _heard(settled, triggered)
            await ground.until(heard, what="a trigger to settle", within=_WITHIN_SECONDS)
    finally:
        await broker.close()
    async with ground.database.acquire() as connection:
        rows = await connection.fetch(queries["started"], list(asked))
    starts = [(row["started_at"] - asked[row["work_id"]][1]).total_seconds() for row in rows]
    ends = [settled[one] - began for one, (began, _) in asked.items()]
    return {
        "triggers": len(asked),
        "to_start_ms": _quantiles(starts),
        "to_settled_ms": _quantiles(ends),
    }


async def burst(ground: Ground, work: int) -> Figures:
    """As many manifests as there is work, all due in the same second."""
    due_at = (utc_now() + timedelta(seconds=5 + work / 500)).replace(microsecond=0)
    when = once(due_at.replace(tzinfo=None), tz="UTC")
    await ground.client.schedule_many(
        "burst", job="nothing", items=range(work), key=str, when=when, group="bench"
    )
    if utc_now() >= due_at:
        raise PartEnded("declaring took longer than the time that was left for it: try less work")
    before = await ground.counters.read()

    async def due() -> bool:
        return utc_now() >= due_at

    await ground.until(due, what="the due time", within=_WITHIN_SECONDS)
    began = monotonic()
    await ground.until(_all_fired(ground, due_at), what="all to fire", within=_WITHIN_SECONDS)
    await ground.until(_all_settled(ground), what="all work to settle", within=_WITHIN_SECONDS)
    seconds = monotonic() - began
    after = await ground.counters.read()
    async with ground.database.acquire() as connection:
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


def _all_settled(ground: Ground) -> Callable[[], Awaitable[bool]]:
    async def settled() -> bool:
        return not await ground.holds(queries["outstanding"])

    return settled


def _all_fired(ground: Ground, due_at: datetime) -> Callable[[], Awaitable[bool]]:
    async def fired() -> bool:
        return not await ground.holds(queries["due"], due_at)

    return fired


def _heard(settled: dict[UUID, float], work: UUID) -> Callable[[], Awaitable[bool]]:
    async def heard() -> bool:
        return work in settled

    return heard


def _quantiles(seconds: list[float]) -> dict[str, float]:
    """The median, and what 99 of 100 stay under, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "p50": round(statistics.median(ordered) * 1000, 1),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000, 1),
    }
