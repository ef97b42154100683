"""Orders of several runs, made by hand."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_dispatcher.store import HISTORY, SOURCE
from headway_history import Record
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish

from support.work_events import queue

RUN = """
    INSERT INTO dispatcher.metadata
        (run_id, work_id, lease_id, group_name, job, round, attempt, state, created_at,
         max_run_seconds)
    VALUES ($1, $2, $3, 'ops', 'job', 1, 1, 'pending', $5, $4)
"""


async def queue_many(world, count: int, **fields) -> list[UUID]:
    """Queue work that the gate leaves alone until it comes back; inputs count from 0."""
    later = utc_now() + timedelta(days=1)
    works = [
        await queue(world, input=number, not_before=later, **fields) for number in range(count)
    ]
    await world.until(
        "SELECT count(*) = $2 FROM dispatcher.work_queue WHERE id = ANY($1)", works, count
    )
    return works


async def order(
    world,
    works: list[UUID],
    *,
    patience: float = 600.0,
    lease: UUID | None = None,
    hand_back_seconds: float | None = None,
    **fields,
) -> RunDispatched:
    """Order runs of all this work under one lease, as the gate would."""
    runs = [
        OrderedRun(
            run=uuid4(), work=work, attempt=1, attempts=3, group="ops", cause="x", input=number,
            **fields,
        )
        for number, work in enumerate(works)
    ]  # fmt: skip
    now = utc_now()
    made = RunDispatched(
        lease=lease or uuid4(),
        token="t" * 32,
        job="job",
        runs=runs,
        hand_back_seconds=hand_back_seconds,
    )
    async with world.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO dispatcher.lease (id, token, job, created_at)"
            " VALUES ($1, $2, 'job', clock_timestamp())",
            made.lease,
            made.token,
        )
        for run in runs:
            await connection.execute(RUN, run.run, run.work, made.lease, patience, now)
            await connection.execute(
                "UPDATE dispatcher.work_queue SET state = 'dispatched', run_id = $2,"
                " runs = runs + 1, wait_reason = NULL WHERE id = $1",
                run.work,
                run.run,
            )
        await HISTORY.append(connection, [_record(made, run, patience, now) for run in runs])
    body = encode(event(made, id=made.lease, source="test", subject="x", time=utc_now()))
    answer = await publish(world.broker, subjects.order("job", made.lease), body)
    assert isinstance(answer, Stored)
    return made


def _record(made: RunDispatched, run: OrderedRun, patience: float, now: datetime) -> Record:
    """Make the record that the gate would have kept of it."""
    data = {
        "lease": made.lease,
        "job": made.job,
        "run": run.run,
        "work": run.work,
        "round": run.round,
        "attempt": run.attempt,
        "group": run.group,
        "cause": run.cause,
        "max_run_seconds": patience,
    }
    return Record(
        event_id=f"{made.lease}.{run.run}",
        type=RunDispatched.type,
        subject=str(run.run),
        source=SOURCE,
        occurred_at=now,
        data=data,
        work=run.work,
        run=run.run,
        lease=made.lease,
    )
