"""Workers that people ask to drain. They hear of it in the answer to their next heartbeat."""

from collections.abc import Sequence
from typing import Any

from headway_clock import new_id
from headway_contract.operating import DrainAnswer, DrainRequest, DrainResult
from headway_history import Record
from headway_postgres_kit import Connection

from headway_dispatcher.store import HISTORY, Times, workers


async def drain(connection: Connection, request: DrainRequest, *, times: Times) -> DrainAnswer:
    """Let workers take no more orders; says of each what became of it."""
    rows = await connection.fetch(workers["ask_to_drain"], sorted(set(request.workers)))
    known = {row["name"]: row for row in rows}
    asked = [name for name, row in known.items() if not row["drained_before"]]
    await _write_history(connection, asked, request.actor, times)
    return DrainAnswer(results=[_result(name, known.get(name)) for name in request.workers])


def _result(worker: str, row: Any) -> DrainResult:
    if row is None:
        text = f"there is no worker {worker}: see 'headway workers'"
        return DrainResult(worker=worker, result="unknown", text=text)
    if row["drained_before"]:
        word, text = "already_draining", "drains already"
    else:
        word, text = "asked", "takes no more orders, finishes what it runs, and ends"
    return DrainResult(
        worker=worker, result=word, last_heard_at=row["last_heard_at"], text=f"{worker} {text}"
    )


async def _write_history(
    connection: Connection, asked: Sequence[str], actor: str, times: Times
) -> None:
    records = [
        Record(
            event_id=str(new_id()),
            type="headway.worker.drain_asked.v1",
            subject=name,
            source=f"operator/{actor or 'unknown'}",
            occurred_at=times.schedule,
            data={"worker": name},
        )
        for name in asked
    ]
    await HISTORY.append(connection, records, now=times.real)
