"""Concurrent gates: no commit exceeds a limit, and no work is left behind."""

import asyncio
import random
from datetime import timedelta
from uuid import uuid4

import pytest
from headway_contract.fields import Rate
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    ManifestChanged,
    RetryPolicy,
    WorkBroughtForward,
)
from headway_dispatcher.intake import work_intake
from headway_dispatcher.store import GATE_LOCK, HISTORY
from support.gates import Gates, many_pools, work
from support.invariants import VIOLATIONS
from support.tiers import first_in_each_tier
from support.world import until

pytestmark = pytest.mark.thorough


async def pass_until(gate, done: asyncio.Event, admitted: list[int]) -> None:
    while not done.is_set():
        admitted.append((await gate.run_once()).admitted)
        await asyncio.sleep(0)


async def race_gates(gates: Gates, pools, total: int, *, failing=None, within=60.0) -> None:
    """Run gates and finish runs concurrently until all work is settled."""
    done, admitted = asyncio.Event(), []
    passes = [
        asyncio.create_task(pass_until(gates.another(pool), done, admitted)) for pool in pools
    ]

    async def settled() -> bool:
        for task in passes:
            if task.done():
                task.result()
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


@pytest.mark.parametrize("cap", first_in_each_tier(["global", "key", "group", "job"], first=2))
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
        await race_gates(gates, pools, 20)
    # Runs are sequential: each began after the previous run had ended.
    assert await gates.value(
        "SELECT bool_and(created_at >= before) FROM (SELECT created_at, lag(finished_at)"
        " OVER (ORDER BY created_at) AS before FROM dispatcher.run) AS runs"
    )


@pytest.mark.parametrize(
    "change",
    [
        GroupChanged(group="etl", version=2, max_active=1),
        JobChanged(job="etl", version=2, max_active=1),
    ],
)
async def test_a_limit_changes_between_two_passes_and_never_during_one(database, change):
    gates = Gates(database)
    limits = (
        "SELECT (SELECT count(*) FROM dispatcher.group_limit WHERE max_active = 1)"
        " + (SELECT count(*) FROM dispatcher.job_limit WHERE max_active = 1)"
    )

    async def waits() -> bool:
        return await gates.value(
            "SELECT count(*) = 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'advisory'"
        )

    async with database.locked_transaction(GATE_LOCK):
        change_task = asyncio.create_task(gates.tell(change))
        await until(waits, within=10, what="the change waits for the pass")
        assert await gates.value(limits) == 0
    await change_task
    assert await gates.value(limits) == 1


@pytest.mark.parametrize("seed", first_in_each_tier(range(4)))
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
        await race_gates(gates, pools, 40, failing=failing)
    for name, count in rates.items():
        if count is not None:
            rows = await gates.rows(
                "SELECT created_at FROM dispatcher.run WHERE group_name = $1", name
            )
            times = [row["created_at"] for row in rows]
            length = timedelta(seconds=period)
            for start in times:
                assert sum(start <= at < start + length for at in times) <= count
    assert await gates.value("SELECT count(*) FROM dispatcher.key_changed") == 0


@pytest.mark.parametrize("seed", range(2))
async def test_no_key_is_lost_while_lanes_close_and_work_is_brought_forward(
    database, database_url, seed
):
    """Check after each step, not only at the end, that no commit loses a free key."""
    chance = random.Random(seed)
    gates = Gates(database, max_active=6)
    await gates.watch_caps()
    await gates.worker("etl", "mail", slots=3)
    manifests = [uuid4() for _ in range(4)]
    now = await gates.value("SELECT clock_timestamp()")
    works = [
        work(
            group=chance.choice("ab"),
            job=chance.choice(["etl", "mail", "scan"]),
            manifest_id=chance.choice([None, *manifests]),
            slot=number,
            priority=chance.randint(0, 31),
            queued_at=now,
            concurrency_key=chance.choice("xyz"),
            concurrency_limit=chance.choice([1, 1, 2, 3]),
        )
        for number in range(40)
    ]
    await gates.queue(*works)

    async def disturb(version: int) -> None:
        manifest, group, enabled = chance.choice(manifests), chance.choice("ab"), chance.random()
        await gates.tell(
            ManifestChanged(
                manifest_id=manifest,
                manifest="m",
                group="a",
                version=version,
                enabled=enabled < 0.5,
            ),
            GroupChanged(group=group, version=version, enabled=enabled < 0.7),
        )
        wanted = WorkBroughtForward(work=chance.choice(works).work, group="a", at=now)
        async with gates.database.transaction() as connection:
            records = []
            await work_intake.bring_forward(connection, [wanted], now, records)
            # While the row is locked, other transactions end runs and release their keys.
            others = [work_id for work_id in await gates.active() if work_id != wanted.work]
            if others:
                await gates.end(*others[:2])
            await gates.run()
            await HISTORY.append(connection, records)
        assert await gates.rows(VIOLATIONS["i6_key_kept_from_who_waits"]) == []

    done, admitted = asyncio.Event(), []
    async with many_pools(database_url, 2) as pools:
        passes = [
            asyncio.create_task(pass_until(gates.another(pool), done, admitted)) for pool in pools
        ]
        try:
            for version in range(1, 16):
                await disturb(version)
        finally:
            done.set()
            await asyncio.gather(*passes)
        await gates.worker("scan", slots=3, name="other")
        await gates.tell(
            *(GroupChanged(group=group, version=99) for group in "ab"),
            *(
                ManifestChanged(
                    manifest_id=manifest_id, manifest="m", group="a", version=99, enabled=True
                )
                for manifest_id in manifests
            ),
        )
        await race_gates(gates, pools, len(works))
