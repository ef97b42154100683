"""The invariants, asked of the database after whatever a test did to the services."""

import msgspec
from headway_contract.lifecycle import (
    Activation,
    Failure,
    LeaseClaimed,
    LeaseRenewed,
    LeaseRevoked,
    RunActivated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from headway_decisions.folding import Fact, Run, fold
from headway_postgres_kit import Database

LIFECYCLE = {
    struct.type: struct
    for struct in (
        LeaseClaimed,
        LeaseRenewed,
        LeaseRevoked,
        RunStarted,
        RunActivated,
        RunCompleted,
        RunFailed,
        RunCancelled,
    )
}

# Each must find nothing.
VIOLATIONS = {
    "I2: a run whose work or lease is gone": """
        SELECT run_id FROM dispatcher.metadata
        WHERE NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = work_id)
           OR NOT EXISTS (SELECT FROM dispatcher.lease WHERE lease.id = lease_id)
    """,
    "I1: an occurrence fired, and its work is neither outstanding nor settled": """
        SELECT manifest_id, cause FROM scheduler.occurrence
        WHERE decision = 'queued' AND outcome IS NULL
          AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = occurrence.work_id)
    """,
    "I1: work of a manifest that no occurrence tells of": """
        SELECT id FROM dispatcher.work_queue
        WHERE manifest_id IS NOT NULL AND job <> '' AND NOT EXISTS (
            SELECT FROM scheduler.occurrence
            WHERE occurrence.manifest_id = work_queue.manifest_id
              AND occurrence.cause = work_queue.cause AND occurrence.work_id = work_queue.id)
    """,
    "I6: what was enqueued was queued, and its work is nowhere": """
        SELECT work_id FROM scheduler.enqueued
        WHERE state = 'queued'
          AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.id = work_id)
          AND NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE work_queue.id = work_id)
    """,
    "I2: two accepted outcomes of one run": """
        SELECT run_id FROM dispatcher.history
        WHERE accepted AND type IN ('headway.run.completed.v1', 'headway.run.failed.v1',
                                    'headway.run.cancelled.v1')
        GROUP BY run_id HAVING count(*) > 1
    """,
    "I2: a live run of work that is not dispatched": """
        SELECT metadata.run_id FROM dispatcher.metadata
        JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id
        WHERE metadata.state IN ('pending', 'in_progress')
          AND (work_queue.state <> 'dispatched' OR work_queue.run_id <> metadata.run_id)
    """,
    "I2: an ended run without an accepted outcome": """
        SELECT run_id FROM dispatcher.metadata
        WHERE finished_at IS NOT NULL AND NOT EXISTS (
            SELECT FROM dispatcher.history
            WHERE history.run_id = metadata.run_id AND accepted
              AND type IN ('headway.run.completed.v1', 'headway.run.failed.v1',
                           'headway.run.cancelled.v1'))
    """,
    "I4: an accepted event of somebody who did not hold the lease": """
        SELECT history.event_id FROM dispatcher.history
        JOIN dispatcher.lease ON lease.id = history.lease_id
        WHERE history.accepted AND history.source LIKE 'worker/%'
          AND (history.data ->> 'nonce') IS DISTINCT FROM lease.nonce
    """,
    "I6: settled work that the scheduler still waits for, with nothing on its way": """
        SELECT work.id FROM scheduler.work
        JOIN dispatcher.work_queue ON work_queue.id = work.id AND work_queue.state = 'settled'
        WHERE NOT EXISTS (SELECT FROM dispatcher.outbox)
          AND work_queue.settled_at < clock_timestamp() - interval '10 seconds'
    """,
    "I6: dispatched work whose run has ended": """
        SELECT work_queue.id FROM dispatcher.work_queue
        JOIN dispatcher.metadata ON metadata.run_id = work_queue.run_id
        WHERE work_queue.state = 'dispatched' AND metadata.finished_at IS NOT NULL
    """,
    "I8: a message was rejected": "SELECT id, reason FROM dispatcher.rejected",
    "a secret in the history": "SELECT event_id FROM dispatcher.history WHERE data ? 'token'",
}


async def check_invariants(
    database: Database, *, rejected: int = 0, scheduled: bool = True
) -> None:
    """Raise if any invariant is broken; I1 is asked only where a scheduler made the work."""
    async with database.acquire() as connection:
        for what, query in VIOLATIONS.items():
            if what.startswith("I1") and not scheduled:
                continue
            rows = await connection.fetch(query)
            if what.startswith("I8"):
                assert len(rows) == rejected, f"{what}: {rows}"
            else:
                assert not rows, f"{what}: {rows}"
        runs = await connection.fetch("SELECT * FROM dispatcher.metadata")
        history = await connection.fetch("SELECT * FROM dispatcher.history ORDER BY id")
    for row in runs:
        facts = [
            _fact(event)
            for event in reversed(history)
            if event["type"] in LIFECYCLE
            and (
                event["run_id"] == row["run_id"]
                or (event["run_id"] is None and event["lease_id"] == row["lease_id"])
            )
        ]
        assert fold(Run(id=row["run_id"]), facts) == _run(row), "I7: the fold is not the record"


def _fact(row) -> Fact:
    data = msgspec.convert({**row["data"], "token": ""}, LIFECYCLE[row["type"]])
    kind, _, name = row["source"].partition("/")
    worker = name if kind == "worker" else "_dispatcher"
    return Fact(at=row["occurred_at"], worker=worker, data=data, accepted=row["accepted"])


def _run(row) -> Run:
    failure = row["failure"]
    return Run(
        id=row["run_id"],
        state=row["state"],
        worker=row["worker"],
        host=row["host"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        failure=None if failure is None else msgspec.convert(failure, Failure),
        output=row["output"],
        cancel_reason=row["cancel_reason"],
        activations=msgspec.convert(row["activations"] or (), tuple[Activation, ...]),
    )
