"""Check constraints: the state of a row restricts its other columns."""

from uuid import uuid4

import asyncpg
import pytest

pytestmark = pytest.mark.breaks_tables("writes rows by hand")

WORK = """
    INSERT INTO dispatcher.work_queue
        (id, round, slot, group_name, job, cause, queued_at, priority, rank, not_before, terms,
         received_at, {columns})
    VALUES ($1, 1, 0, 'ops', 'job', 'test', now(), 0, now(), now(), '{{}}', now(),
            {values})
"""
RUN = """
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, group_name, job, round, attempt, created_at, max_run_seconds,
         {columns})
    VALUES ($1, $2, $3, 'ops', 'job', 1, 1, now(), 1, {values})
"""


def fill_in(query: str, row: dict[str, str]) -> str:
    return query.format(columns=", ".join(row), values=", ".join(row.values()))


# Each a row that is stored, and one that is refused.
WORKS = [
    ({"state": "'queued'", "wait_reason": "'x'"}, {"state": "'queued'"}),
    (
        {"state": "'waiting'", "wait_reason": "'x'", "runs": "1"},
        {"state": "'waiting'", "wait_reason": "'x'"},
    ),
    (
        {"state": "'dispatched'", "run_id": "$1", "lease_id": "$1"},
        {"state": "'dispatched'", "run_id": "$1"},
    ),
    (
        {"state": "'settled'", "outcome": "'expired'", "settled_at": "now()"},
        {"state": "'settled'", "outcome": "'vanished'", "settled_at": "now()"},
    ),
    (
        {"state": "'settled'", "outcome": "'completed'", "settled_at": "now()"},
        {"state": "'settled'", "outcome": "'completed'"},
    ),
    (
        {
            "state": "'dispatched'",
            "run_id": "$1",
            "lease_id": "$1",
            "attempts": "1",
            "runs": "1",
        },
        {
            "state": "'dispatched'",
            "run_id": "$1",
            "lease_id": "$1",
            "attempts": "2",
            "runs": "1",
        },
    ),
]


async def test_work(world):
    await world.value("INSERT INTO dispatcher.group_limit (name) VALUES ('ops')")
    for good, bad in WORKS:
        await world.value(fill_in(WORK, good), uuid4())
        with pytest.raises(asyncpg.CheckViolationError):
            await world.value(fill_in(WORK, bad), uuid4())


BEGUN = {"started_at": "now()", "start_heard_at": "now()"}
ENDED = {**BEGUN, "finished_at": "now()"}


# Each a row that is stored, and one that is refused.
RUNS = [
    ({"state": "'pending'"}, {"state": "'pending'", **BEGUN}),
    ({"state": "'in_progress'", **BEGUN}, {"state": "'in_progress'"}),
    ({"state": "'completed'", **ENDED, "output": "'1'"}, {"state": "'completed'", **BEGUN}),
    (
        {"state": "'failed'", **ENDED, "failure": "'{}'"},
        {"state": "'failed'", **ENDED, "failure": "'{}'", "output": "'1'"},
    ),
    ({"state": "'failed'", **ENDED, "failure": "'{}'"}, {"state": "'failed'", **ENDED}),
    (
        {"state": "'cancelled'", **ENDED, "cancel_reason": "''"},
        {"state": "'cancelled'", **ENDED},
    ),
    (
        {"state": "'completed'", **ENDED},
        {"state": "'completed'", **ENDED, "cancel_reason": "'late'"},
    ),
]


async def test_runs(world):
    await world.value("INSERT INTO dispatcher.group_limit (name) VALUES ('ops')")
    for good, bad in RUNS:
        work, lease = uuid4(), uuid4()
        await world.value(
            fill_in(WORK, {"state": "'dispatched'", "run_id": "$1", "lease_id": "$1"}), work
        )
        await world.value(
            "INSERT INTO dispatcher.lease (id, token, job, created_at)"
            " VALUES ($1, 't', 'job', now())",
            lease,
        )
        with pytest.raises(asyncpg.CheckViolationError):
            await world.value(fill_in(RUN, bad), uuid4(), work, lease)
        await world.value(fill_in(RUN, good), uuid4(), work, lease)
