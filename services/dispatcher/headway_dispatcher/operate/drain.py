"""Drain workers: the reply to their next heartbeat contains the instruction."""

from typing import Any

from headway_contract.operations import DrainAnswer, DrainRequest, DrainResult
from headway_postgres_kit import Connection

from headway_dispatcher.events import operator_record
from headway_dispatcher.store import HISTORY, Times, workers


async def drain(connection: Connection, request: DrainRequest, *, times: Times) -> DrainAnswer:
    """Let workers claim no more orders; returns a result for each."""
    rows = await connection.fetch(workers["drain"], sorted(set(request.workers)))
    known = {row["name"]: row for row in rows}
    type_, at = "headway.worker.drain_asked.v1", times.schedule
    records = [
        operator_record(type_, name, request.actor, at, {"worker": name})
        for name, row in known.items()
        if not row["drained_before"]
    ]
    await HISTORY.append(connection, records, now=times.real)
    return DrainAnswer(results=[_result(name, known.get(name)) for name in request.workers])


def _result(worker: str, row: Any) -> DrainResult:
    if row is None:
        text = f"there is no worker {worker}: see 'headway workers'"
        return DrainResult(worker=worker, result="unknown", text=text)
    if row["drained_before"]:
        word, text = "already_draining", "drains already"
    else:
        word, text = "asked", "takes no more orders, finishes its runs, and ends"
    return DrainResult(
        worker=worker, result=word, last_heard_at=row["last_heard_at"], text=f"{worker} {text}"
    )
