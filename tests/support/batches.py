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

DISPATCH = """
    UPDATE dispatcher.work_queue
    SET state = 'dispatched', run_id = $2, lease_id = $3, runs = runs + 1, wait_reason = NULL
    WHERE id = $1
    RETURNING dispatcher.max_run_seconds(terms)
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
            "INSERT INTO dispatcher.lease (id, token, job, created_at, ordered_at)"
            " VALUES ($1, $2, 'job', clock_timestamp(), $3)",
            made.lease,
            made.token,
            now,
        )
        for run in runs:
            patience = await connection.fetchval(DISPATCH, run.work, run.run, made.lease)
        await HISTORY.append(connection, [_record(made, patience, now)])
    body = encode(event(made, id=made.lease, source="test", subject="x", time=utc_now()))
    answer = await publish(world.broker, subjects.order("job", made.lease), body)
    assert isinstance(answer, Stored)
    return made


def _record(made: RunDispatched, patience: float, now: datetime) -> Record:
    """Make the record that the gate would have kept of it."""
    runs = [
        {
            "run": run.run,
            "work": run.work,
            "round": run.round,
            "attempt": run.attempt,
            "group": run.group,
            "cause": run.cause,
            "max_run_seconds": patience,
        }
        for run in made.runs
    ]
    single = runs[0] if len(runs) == 1 else {}
    return Record(
        event_id=str(made.lease),
        type=RunDispatched.type,
        subject=str(made.lease),
        source=SOURCE,
        occurred_at=now,
        data={"lease": made.lease, "job": made.job, **(single or {"runs": runs})},
        work=single.get("work"),
        run=single.get("run"),
        lease=made.lease,
    )
