"""Query plans of the gate: it reads only what it may admit, whatever the backlog."""

import json
import os
from datetime import timedelta
from typing import Any

import pytest
from headway_contract.work import GroupChanged
from headway_dispatcher.store import gates as queries
from headway_dispatcher.store import leases, workers, works
from support.gates import START, Gates, SetClock, work
from support.plans import FILL, outline, rows_read, scans_of

pytestmark = [pytest.mark.breaks_tables("fills the queue by hand"), pytest.mark.long]

# Far more rows than the gate may read; a hundred thousand with `./justw faults`.
BACKLOG = 100_000 if os.environ.get("HEADWAY_LONG") else 20_000
# Limit for the table and index rows that a statement touches: its few candidates, each looked
# up a few times, and one step for each lane.
FEW = 200


@pytest.fixture
async def gates(database):
    made = Gates(database, clock=SetClock())
    await made.worker("etl", "mail")
    await made.tell(
        GroupChanged(group="full", version=1, max_active=0),
        *(GroupChanged(group=name, version=1) for name in ("unserved", "keyed", "later", "wide")),
    )
    return made


async def explained(
    gates: Gates, name: str, *arguments: Any, queries: Any = queries
) -> dict[str, Any]:
    async with gates.database.acquire() as connection:
        # Use the generic plan, as for a statement that was prepared long ago.
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        try:
            text = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {queries[name]}", *arguments
            )
        finally:
            await connection.execute("RESET plan_cache_mode")
    return json.loads(text)[0]["Plan"]


async def candidates(gates: Gates, groups: dict[str, int], jobs: dict[str, int]) -> dict[str, Any]:
    return await explained(
        gates,
        "candidates",
        list(groups),
        list(groups.values()),
        list(groups.values()),
        [True for _ in groups],
        list(jobs),
        list(jobs.values()),
        list(jobs.values()),
        [1 for _ in jobs],
        START,
        200,
        timedelta(minutes=32),
    )


BACKLOGS = {
    "of a full group": ("full", "etl", None, None),
    "of a job that nobody serves": ("unserved", "nobody", None, None),
    "of a busy key": ("keyed", "etl", "key", "busy"),
    "of disabled manifests": ("wide", "etl", "manifest_disabled", None),
    "that is delayed": ("later", "etl", "not_before", None),
}


@pytest.mark.parametrize("which", BACKLOGS)
async def test_a_backlog_is_not_read_through(gates, which):
    group, job, hold_reason, key = BACKLOGS[which]
    later = START + timedelta(hours=1) if hold_reason == "not_before" else START
    async with gates.database.acquire() as connection:
        await connection.execute(FILL, BACKLOG, group, job, later, hold_reason, key)
        await connection.execute(FILL, 5, "wide", "mail", START + timedelta(minutes=5), None, None)
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    plan = await candidates(gates, {"full": 0}, {"etl": 50, "mail": 50})
    assert plan["Actual Rows"] == 5
    assert rows_read(plan) < FEW, outline(plan)
    assert "Seq Scan" not in scans_of(plan, "work_queue")
    for name, arguments in (
        ("look", ()),
        ("situation", (timedelta(seconds=60),)),
        ("lanes", ()),
        ("release_due", (START,)),
        ("expired", (START,)),
    ):
        plan = await explained(gates, name, *arguments)
        assert rows_read(plan) < FEW, (name, outline(plan))


async def test_workers_that_crashed_are_not_read(gates):
    """The gate reads the workers while it holds its lock."""
    async with gates.database.acquire() as connection:
        await connection.execute(
            "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, jobs, slots,"
            " draining, first_heard_at, last_heard_at)"
            " SELECT 'crashed-' || number, '', '', '', '', '{etl}', 1, false, $2, $2"
            " FROM generate_series(1, $1::integer) AS number",
            BACKLOG,
            START - timedelta(days=3650),
        )
        await connection.execute(workers["note_gone"], START - timedelta(days=3000))
        await connection.execute("VACUUM ANALYZE dispatcher.worker")
    for name, arguments, of in (
        ("situation", (timedelta(days=36500),), queries),
        ("serving", (START - timedelta(days=36500),), workers),
    ):
        plan = await explained(gates, name, *arguments, queries=of)
        assert rows_read(plan) < FEW, outline(plan)


async def test_a_released_key_costs_only_the_work_that_gets_it(gates):
    async with gates.database.acquire() as connection:
        await connection.execute(FILL, BACKLOG, "keyed", "etl", START, "key", "busy")
        await connection.execute("INSERT INTO dispatcher.key_changed VALUES ('busy')")
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    plan = await explained(gates, "offer_keys", 1000)
    assert rows_read(plan) < FEW, outline(plan)
    assert (
        await gates.value("SELECT count(*) FROM dispatcher.work_queue WHERE hold_reason IS NULL")
        == 1
    )


@pytest.mark.parametrize("statistics", ["fresh", "stale"])
async def test_a_key_costs_a_step_for_each_lane_with_a_waiter(gates, statistics):
    """No work of the first lane can run, and its first entry has been ready for long."""
    async with gates.database.acquire() as connection:
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
        await connection.execute(FILL, BACKLOG, "full", "etl", START, "key", "busy")
        await connection.execute(FILL, 1, "full", "etl", START - timedelta(hours=1), None, "busy")
        await connection.execute(FILL, BACKLOG, "keyed", "etl", START, "key", "busy")
        for number in range(10):
            await connection.execute(FILL, 100, "wide", f"job-{number}", START, "key", "busy")
        # Older, ready and without a key: the gate does not read these rows either.
        before = START - timedelta(hours=2)
        await connection.execute(FILL, BACKLOG, "keyed", "etl", before, None, None)
        await connection.execute("INSERT INTO dispatcher.key_changed VALUES ('busy')")
        if statistics == "fresh":
            await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    plan = await explained(gates, "offer_keys", 1000)
    assert rows_read(plan) < FEW, outline(plan)
    ready = await gates.rows(
        "SELECT group_name, job FROM dispatcher.work_queue"
        " WHERE hold_reason IS NULL AND concurrency_key IS NOT NULL"
    )
    assert sorted((row["group_name"], row["job"]) for row in ready) == [
        ("full", "etl"),
        ("keyed", "etl"),
        *(("wide", f"job-{number}") for number in range(10)),
    ]


async def test_bringing_work_forward_does_not_read_the_waiters_of_its_key(gates):
    async with gates.database.acquire() as connection:
        await connection.execute(FILL, BACKLOG, "keyed", "etl", START, "key", "busy")
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    last = await gates.value("SELECT id FROM dispatcher.work_queue ORDER BY rank DESC LIMIT 1")
    plan = await explained(gates, "bring_forward", [last], START, queries=works)
    assert rows_read(plan) < FEW, outline(plan)
    first = await gates.value("SELECT id FROM dispatcher.work_queue ORDER BY rank LIMIT 1")
    assert first == last


async def test_due_work_costs_only_its_own_rows(gates):
    async with gates.database.acquire() as connection:
        await connection.execute(FILL, BACKLOG, "later", "etl", START, "not_before", None)
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    plan = await explained(gates, "release_due", START)
    assert rows_read(plan) <= 5 * 1000, outline(plan)


@pytest.mark.parametrize("statistics", ["empty", "fresh"])
async def test_a_lane_with_room_is_read_only_as_far_as_its_room_goes(gates, statistics):
    async with gates.database.acquire() as connection:
        await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
        await connection.execute(FILL, BACKLOG, "wide", "etl", START, None, None)
        if statistics == "fresh":
            await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
    plan = await candidates(gates, {}, {"etl": 10})
    assert plan["Actual Rows"] == 10
    assert rows_read(plan) < FEW, outline(plan)
    assert "Seq Scan" not in scans_of(plan, "work_queue"), outline(plan)
    # The row count does not show an index that is scanned once for each locked row.
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < FEW, outline(plan)


async def test_ended_leases_are_not_read(gates):
    async with gates.database.acquire() as connection:
        await connection.execute(FILL, BACKLOG, "wide", "etl", START, None, None)
        await connection.execute(
            "INSERT INTO dispatcher.lease (id, token, job, created_at, ended_at)"
            " SELECT id, '', job, rank, rank FROM dispatcher.work_queue"
        )
        await connection.execute(
            "INSERT INTO dispatcher.metadata (run_id, work_id, lease_id, group_name, job, round,"
            " attempt, state, created_at, finished_at, max_run_seconds)"
            " SELECT gen_random_uuid(), id, id, group_name, job, 1, 1, 'completed', rank, rank,"
            " 1 FROM dispatcher.work_queue"
        )
        await connection.execute(
            "UPDATE dispatcher.work_queue SET state = 'settled', outcome = 'completed',"
            " settled_at = rank, wait_reason = NULL, hold_reason = NULL, start_by = rank"
        )
        await connection.execute(
            "VACUUM ANALYZE dispatcher.work_queue, dispatcher.lease, dispatcher.metadata"
        )
    await gates.queue(work(start_by=START + timedelta(hours=1), queued_at=START))
    assert await gates.drain() == 1
    for name, arguments, of in (
        ("unclaimed_until", (1000, START), leases),
        ("serving", (START - timedelta(days=3650),), workers),
        ("situation", (timedelta(seconds=60),), queries),
    ):
        plan = await explained(gates, name, *arguments, queries=of)
        assert (plan["Actual Rows"], rows_read(plan) < FEW) == (1, True), outline(plan)
