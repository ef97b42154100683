"""What is asked for about enqueued work: enqueue, list, dismiss."""

from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from headway.define.inputs import problem_of_input
from headway_contract.work_queue import DismissRequest, EnqueueAnswer, EnqueueRequest
from headway_errors import Conflict, Invalid, NotFound, Rejected
from headway_postgres_kit import Connection

from headway_scheduler.store import HISTORY, audit, enqueued, manifests

# What headway.enqueue() refuses with; anything else is a fault of ours.
_REFUSALS: dict[type[Exception], type[Rejected]] = {
    asyncpg.UndefinedObjectError: NotFound,
    asyncpg.InvalidParameterValueError: Invalid,
    asyncpg.UniqueViolationError: Conflict,
    asyncpg.ObjectNotInPrerequisiteStateError: Conflict,
}


async def enqueue(
    connection: Connection, request: EnqueueRequest, *, now: datetime
) -> EnqueueAnswer:
    """Enqueue work as an application would; an input that does not fit is refused at once."""
    await _check_input(connection, request)
    delay = request.delay_seconds
    before = await _enqueued_before(connection, request)
    try:
        work = await connection.fetchval(
            enqueued["enqueue"],
            request.job,
            request.input,
            request.group,
            request.priority,
            None if delay is None else timedelta(seconds=delay),
            request.not_before,
            request.start_by,
            request.key,
            request.traceparent,
        )
    except tuple(_REFUSALS) as error:
        raise _REFUSALS[type(error)](_told(error)) from error
    if before:
        text = f"{request.job}: the key {request.key!r} enqueued it before, as work {work}"
        return EnqueueAnswer(work=work, text=text)
    data = {"job": request.job, "key": request.key}
    await _audit(connection, "headway.work.enqueued.v1", str(work), request, data, now)
    return EnqueueAnswer(work=work, text=f"{request.job}: enqueued as work {work}")


async def _enqueued_before(connection: Connection, request: EnqueueRequest) -> bool:
    """Whether the key has its work already; two at once may both be told that theirs is new."""
    if request.key is None:
        return False
    return bool(await connection.fetchval(enqueued["is_known"], request.job, request.key))


async def dismiss(connection: Connection, request: DismissRequest, *, now: datetime) -> str:
    """Forget work that was refused; the audit keeps why."""
    row = await connection.fetchrow(enqueued["lock_refused"], request.work)
    if row is None:
        raise NotFound(
            f"work {request.work} was not refused, or not enqueued at all: see 'headway enqueued'"
        )
    await connection.execute(enqueued["dismiss"], request.work)
    data = {"job": row["job"], "key": row["key"], "reason": row["reason"]}
    await _audit(connection, "headway.work.dismissed.v1", str(request.work), request, data, now)
    return f"work {request.work} of job {row['job']}: forgotten"


async def _check_input(connection: Connection, request: EnqueueRequest) -> None:
    rows = await connection.fetch(manifests["jobs"], [request.job])
    for job in rows:
        problem = problem_of_input(job["input_schema"], job["takes_input"], request.input)
        if problem is not None:
            raise Invalid(f"the input does not fit job {request.job!r}: {problem}")


def _told(error: Any) -> str:
    """What the function said, and its remedy."""
    said = error.message.removeprefix("headway: ")
    return f"{said}: {error.hint}" if error.hint else said


async def _audit(
    connection: Connection, kind: str, subject: str, request: Any, data: Any, now: datetime
) -> None:
    source = f"operator/{request.actor or 'unknown'}"
    record = audit(kind, subject, source, msgspec.to_builtins(data), now)
    await HISTORY.append(connection, [record], now=now)
