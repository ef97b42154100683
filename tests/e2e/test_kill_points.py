"""`kill -9` between two commits: no work is lost and none is counted twice."""

import os
import signal
from collections import Counter

import pytest
from headway_clock import monotonic
from support.invariants import check_invariants
from support.killed_at import POINTS
from support.processes import TESTS
from support.queries import DISABLE_ALL
from support.world import until

SETTINGS = {
    "heartbeat_seconds": "0.5",
    "orphan_timeout_seconds": "3",
    "provision": "auto",
    "app": str(TESTS / "support" / "app_to_be_killed.py"),
}
SERVICES = ("dispatcher", "worker", "scheduler")
# One point per service always runs; `./justw faults` runs the others.
ALWAYS = {"scheduler-after-publish", "dispatcher-after-order", "worker-before-outcome"}
# Points at which a body may run twice: it ran, but its outcome was not published.
RUNS_TWICE = {"worker-before-outcome"}
SETTLED = "SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'"
NOTHING_UNSETTLED = """
    SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')
       AND NOT EXISTS (SELECT FROM scheduler.work)
       AND NOT EXISTS (SELECT FROM scheduler.outbox)
       AND NOT EXISTS (SELECT FROM dispatcher.outbox)
"""
NOT_COMPLETED = """
    SELECT count(*) FROM dispatcher.work_queue
    WHERE state = 'settled' AND outcome NOT IN ('completed', 'coalesced')
"""


@pytest.mark.timeout(150)
@pytest.mark.parametrize("processes", [SETTINGS], indirect=True)
@pytest.mark.parametrize(
    "point",
    [
        name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long)
        for name in sorted(POINTS)
    ],
)
async def test_killed(processes, database, point):
    async def value(query: str, *arguments):
        async with database.acquire() as connection:
            return await connection.fetchval(query, *arguments)

    async def holds(query: str, *arguments, within: float) -> None:
        await until(lambda: value(query, *arguments), within=within, what=query)

    victim, killed = None, point.partition("-")[0]
    # On a busy machine, only a killed worker may be considered dead.
    patience = {} if killed == "worker" else {"HEADWAY_ORPHAN_TIMEOUT_SECONDS": "60"}
    for service in SERVICES:
        if service == killed:
            script = str(TESTS / "support" / "killed_at.py")
            victim = await processes.python(script, point, service, **patience)
        else:
            await processes.headway(service, **patience)
    assert await victim.wait() == -signal.SIGKILL
    if killed == "scheduler" and point.endswith("before-commit"):
        assert await value("SELECT count(*) FROM scheduler.work") == 0
        assert await value("SELECT count(*) FROM scheduler.occurrence") == 0

    began = monotonic()
    await processes.headway(killed, **patience)
    await holds(f"SELECT ({SETTLED}) >= $1", await value(SETTLED) + 3, within=60)
    await value(DISABLE_ALL)
    await holds(NOTHING_UNSETTLED, within=40)
    print(f"{point}: settled {monotonic() - began:.1f} s after the restart began")

    assert await value(NOT_COMPLETED) == 0
    await check_invariants(database)
    bodies = Counter((processes.folder / "bodies").read_text().split())
    twice = [work for work, count in bodies.items() if count > 1]
    if killed == "worker":
        assert twice or point not in RUNS_TWICE
    else:
        assert twice == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "processes", [{**SETTINGS, "app": str(TESTS / "support" / "app_under_test.py")}], indirect=True
)
@pytest.mark.long
async def test_a_worker_that_was_frozen_changes_nothing_when_it_continues(processes, database):
    """Its run was given to another worker, so its later events are refused."""

    async def rows(query: str):
        async with database.acquire() as connection:
            return await connection.fetch(query)

    async def states(*wanted: str) -> bool:
        found = await rows(
            "SELECT state FROM dispatcher.run WHERE job = 'slow' ORDER BY created_at"
        )
        return tuple(row["state"] for row in found[: len(wanted)]) == wanted

    await processes.headway("dispatcher")
    frozen = await processes.headway("worker", HEADWAY_WORKER_NAME="frozen")
    await processes.headway("scheduler")
    await until(lambda: states("in_progress"), within=30, what="a run in progress")
    os.kill(frozen.process_id, signal.SIGSTOP)
    try:
        await processes.headway("worker", HEADWAY_WORKER_NAME="other")
        await until(lambda: states("failed", "completed"), within=40, what="done by another")
    finally:
        os.kill(frozen.process_id, signal.SIGCONT)

    async def lives() -> bool:
        found = await rows(
            "SELECT last_heard_at > clock_timestamp() - interval '2 s' AS lately"
            " FROM dispatcher.worker WHERE name = 'frozen'"
        )
        return any(row["lately"] for row in found)

    await until(lives, within=20, what="a heartbeat of the frozen worker")
    await rows(
        "UPDATE scheduler.manifest SET enabled = false, disabled_by = 'operator', wake_at = NULL RETURNING id"
    )

    async def settled() -> bool:
        return (await rows(NOTHING_UNSETTLED))[0][0]

    await until(settled, within=40, what="all settled")
    slow = await rows(
        "SELECT state, failure, attempt, worker FROM dispatcher.run WHERE job = 'slow'"
        " ORDER BY created_at LIMIT 2"
    )
    assert [(row["state"], row["worker"]) for row in slow] == [
        ("failed", "frozen"),
        ("completed", "other"),
    ]
    assert slow[0]["failure"]["kind"] == "orphaned"
    await check_invariants(database)
