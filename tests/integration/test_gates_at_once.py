"""Many gates at once: no commit exceeds a cap, whatever they do, and nothing is left behind."""

import asyncio
import random
from datetime import timedelta

import pytest
from headway_contract.work import GroupChanged, JobChanged, Rate, RetryPolicy
from support.gates import Gates, many_pools, work
from support.world import until


async def pass_until(gate, done: asyncio.Event, admitted: list[int]) -> None:
    while not done.is_set():
        admitted.append((await gate.run_once()).admitted)
        await asyncio.sleep(0)


async def at_once(gates: Gates, pools, total: int, *, failing=None, within=60.0) -> None:
    """Let gates and ends of runs race until all work is settled."""
    done, admitted = asyncio.Event(), []
    passes = [
        asyncio.create_task(pass_until(gates.another(pool), done, admitted)) for pool in pools
    ]

    async def settled() -> bool:
        for one in passes:
            if one.done():
                one.result()
        active = await gates.active()
        if active:
            chosen = active[: len(active) // 2 + 1]
            await gates.end(*chosen, failure=failing(chosen) if failing else None)
        return (
            await gates.value("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
            == total
        )

    try:
        await until(settled, within=within, what=f"{total} settled")
    finally:
        done.set()
        await asyncio.gather(*passes)


@pytest.mark.parametrize("cap", ["global", "group", "job", "key"])
async def test_twenty_dispatchers_with_a_cap_of_one_never_have_two_active(
    database, database_url, cap
):
    gates = Gates(database, max_active=1 if cap == "global" else 100)
    await gates.watch_caps()
    await gates.worker("etl")
    if cap == "group":
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
    if cap == "job":
        await gates.tell(JobChanged(job="etl", version=1, max_active=1))
    key = "k" if cap == "key" else None
    await gates.queue(*(work(concurrency_key=key) for _ in range(20)))
    async with many_pools(database_url, 20) as pools:
        await at_once(gates, pools, 20)
    # One after the other: each began after the one before it had ended.
    assert await gates.value(
        "SELECT bool_and(created_at >= before) FROM (SELECT created_at, lag(finished_at)"
        " OVER (ORDER BY created_at) AS before FROM dispatcher.metadata) AS runs"
    )


@pytest.mark.parametrize("seed", range(4))
async def test_random_limits_with_several_gates(database, database_url, seed):
    chance = random.Random(seed)
    jobs, names = ["etl", "mail", "scan"], ["a", "b", "c"]
    gates = Gates(database, max_active=chance.randint(2, 6))
    await gates.watch_caps()
    await gates.worker("etl", "mail", slots=3)
    await gates.worker("scan", "mail", slots=3, name="other")
    period = 1.0
    rates = {}
    for name in names:
        rates[name] = chance.choice([None, chance.randint(2, 6)])
        await gates.tell(
            GroupChanged(
                group=name,
                version=1,
                max_active=chance.choice([None, 1, 2, 3]),
                priority=chance.randint(0, 31),
                rate=rates[name] and Rate(count=rates[name], period_seconds=period),
            )
        )
    for job in jobs:
        await gates.tell(
            JobChanged(
                job=job,
                version=1,
                max_active=chance.choice([None, 1, 2]),
                counts_globally=chance.random() < 0.7,
                batch=chance.choice([1, 1, 3]),
            )
        )
    now = await gates.value("SELECT clock_timestamp()")
    await gates.queue(
        *(
            work(
                group=chance.choice(names),
                job=chance.choice(jobs),
                concurrency_key=chance.choice([None, "x", "y", f"z{number}"]),
                concurrency_limit=chance.choice([1, 1, 2]),
                priority=chance.randint(0, 31),
                queued_at=now,
                not_before=chance.choice([None, now + timedelta(seconds=chance.random())]),
                retry=RetryPolicy(attempts=100, interval_seconds=0.05, jitter=0),
            )
            for number in range(40)
        )
    )

    def failing(works) -> str | None:
        return chance.choice([None, None, "Oops", "worker_stopped"])

    async with many_pools(database_url, 4) as pools:
        await at_once(gates, pools, 40, failing=failing)
    for name, count in rates.items():
        if count is not None:
            rows = await gates.rows(
                "SELECT created_at FROM dispatcher.metadata WHERE group_name = $1", name
            )
            times = [row["created_at"] for row in rows]
            length = timedelta(seconds=period)
            for start in times:
                assert sum(start <= one < start + length for one in times) <= count
    assert await gates.value("SELECT count(*) FROM dispatcher.key_changed") == 0
