"""Completed runs: settle their work, all at once.

Most runs complete at their first attempt, and nothing has to be decided about their work. A short
run, of which nothing was written before, gets its row by the statement that settles its work.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any
from uuid import UUID

from headway_contract import Event
from headway_contract.lifecycle import Activation
from headway_contract.settled import WorkSettled
from headway_decisions.runs.folding import Run
from headway_decisions.runs.transitions import IllegalMove
from headway_postgres_kit import Connection, StatementBatch, json_array, note
from headway_tracing import first_context, is_recording, span, traceparent

from headway_dispatcher import events
from headway_dispatcher.metrics import SETTLED, Sample
from headway_dispatcher.runs.settle import Changes, publish
from headway_dispatcher.store import Times, works


async def settle_completed(
    connection: Connection,
    completed: Mapping[UUID, Run],
    *,
    new: Mapping[UUID, datetime] = MappingProxyType({}),
    times: Times,
    changes: Changes,
    writes: StatementBatch,
    contexts: Mapping[Any, str] = MappingProxyType({}),
) -> None:
    """Settle the work of completed runs, which are by work id; the work is locked.

    `new` are the runs without a row, with the times of their creation, and `contexts` the traces in
    which the ends were projected. It adds to `changes` and `writes`.
    """
    rows = await _write(connection, completed, new, times)
    now, traced = times.schedule, is_recording()
    alone: list[Event] = []
    together: dict[str, list[tuple[Any, str | None]]] = {}
    for row in rows:
        run, context = completed[row["id"]], None
        if traced:
            context = contexts.get(run.id) or first_context(row["traceparent"])
            with span("settle", parent=context, work=str(row["id"]), outcome="completed"):
                context = traceparent() or context
        if row["activations"] or run.activations:
            end = _end(row, now, None if row["runs"] > 1 else run.activations)
            alone.append(events.settled_event(end, context))
        else:
            together.setdefault(row["group_name"], []).append((row, context))
        if not changes.note_completed(row, now):
            changes.records.append(events.settled_record(_end(row, now)))
    for (group, job), number in Counter((row["group_name"], row["job"]) for row in rows).items():
        note(Sample(SETTLED, (group, job, "completed"), amount=number))
    packed = (events.works_completed(*members, now) for members in together.items())
    publish(writes, [*alone, *chain.from_iterable(packed)], changes)
    changes.free(rows)


async def _write(
    connection: Connection,
    completed: Mapping[UUID, Run],
    new: Mapping[UUID, datetime],
    times: Times,
) -> Sequence[Any]:
    """Write the end of the work, and the new runs; returns the work."""
    runs = completed.values()
    rows: Sequence[Any] = await connection.fetch(
        works["settle_completed"],
        list(completed),
        times.schedule,
        times.real,
        [run.id for run in runs],
        [new.get(run.id) for run in runs],
        [run.worker for run in runs],
        [run.host for run in runs],
        [run.started_at for run in runs],
        [run.finished_at for run in runs],
        [run.worker_started_at for run in runs],
        [run.worker_finished_at for run in runs],
        json_array(run.output for run in runs),
    )
    if len(rows) < len(completed):
        missing = set(completed) - {row["id"] for row in rows}
        raise IllegalMove(f"work that is not dispatched cannot be completed: {missing}")
    return rows


def _end(row: Any, now: datetime, activations: Sequence[Activation] | None = ()) -> WorkSettled:
    return events.work_settled(
        row,
        outcome="completed",
        reason="",
        attempts=row["attempts"],
        dead_letter=None,
        settled_at=now,
        activations=activations,
    )
