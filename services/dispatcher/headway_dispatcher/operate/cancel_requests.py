"""Cancels that people ask for: which work is meant, and what became of each.

What waits is settled, what a worker has is asked to stop (`cancels`), and what only the
scheduler knows of yet is written down, so that it never starts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headway_contract.dispatching import CancelAnswer, CancelRequest, CancelResult, NamedWork
from headway_contract.work import WorkCancelRequested
from headway_history import Record
from headway_postgres_kit import Connection
from msgspec import Struct, structs

from headway_dispatcher.letters import letters
from headway_dispatcher.operate import cancel_pass
from headway_dispatcher.store import HISTORY, Times, cancel_queries, letter_queries

BATCH = 500
# What fits into an answer: all that a request can name, and a page. What is more is counted.
_MOST_TOLD = 1500


class _Meant(Struct, frozen=True, kw_only=True):
    """What a request names: work by its id, runs that are over, and ids of neither."""

    works: dict[UUID, NamedWork | None]
    called: dict[UUID, UUID]
    ended_runs: dict[UUID, Any]
    more: bool


async def cancel(connection: Connection, request: CancelRequest, *, times: Times) -> CancelAnswer:
    """End work early; says of each what became of it. Burying is locked out."""
    meant = await _meant(connection, request)
    rows = await connection.fetch(cancel_queries["lock"], sorted(meant.works))
    before = {row["id"]: row for row in rows}
    reason = request.reason or f"cancelled by {request.actor or 'an operator'}"
    requests = [
        _request(before.get(work), named, reason, times)
        for work, named in meant.works.items()
        if _may_end(before.get(work), named)
    ]
    records: list[Record] = []
    # Before the slots are free for them.
    withdrawn = await connection.fetch(letter_queries["withdraw"], list(meant.works))
    waited_for = await cancel_pass.request(connection, requests, times.schedule, records)
    await _write_history(connection, records, request.actor, times)
    await letters.resume_at_once(connection, waited_for, now=times.schedule)
    kept = {row["work_id"] for row in withdrawn}
    results = [
        _result(work, before.get(work), meant, named, work in kept)
        for work, named in meant.works.items()
    ]
    results += [_ended(run, row) for run, row in meant.ended_runs.items()]
    counts = Counter(one.result for one in results)
    return CancelAnswer(results=results[:_MOST_TOLD], counts=dict(counts), more=meant.more)


async def _meant(connection: Connection, request: CancelRequest) -> _Meant:
    runs = await connection.fetch(cancel_queries["runs_named"], request.ids)
    live = {row["run_id"]: row["work_id"] for row in runs if not row["ended"]}
    ended = {row["run_id"]: row for row in runs if row["ended"]}
    works: dict[UUID, NamedWork | None] = {
        live.get(one, one): None for one in request.ids if one not in ended
    }
    works |= {one.work: one for one in request.works}
    members: list[Any] = []
    if request.group is not None:
        members += await connection.fetch(cancel_queries["of_group"], request.group, BATCH)
    if request.manifest_id is not None:
        members += await connection.fetch(cancel_queries["of_manifest"], request.manifest_id, BATCH)
    # All of them, however many: what ends on one page makes room for those of the next.
    waiting = await connection.fetch(
        cancel_queries["waiting_for_slots"], request.group, request.manifest_id
    )
    works |= {row["id"]: works.get(row["id"]) for row in (*members, *waiting)}
    return _Meant(
        works=works,
        called={work: run for run, work in live.items()},
        ended_runs=ended,
        more=len(members) >= BATCH,
    )


def _may_end(row: Any, named: NamedWork | None) -> bool:
    """Whether work is under way here, or the scheduler says that it is on its way."""
    return named is not None if row is None else row["state"] != "settled"


def _request(row: Any, named: NamedWork | None, reason: str, times: Times) -> WorkCancelRequested:
    """The round that is under way here, or the one that the scheduler knows of."""
    if row is not None:
        named = NamedWork(
            work=row["id"],
            round=max(row["round"], 1 if named is None else named.round),
            manifest_id=row["manifest_id"],
            manifest=row["manifest"],
            group=row["group_name"],
        )
    assert named is not None  # noqa: S101 - what nobody knows is not asked for
    return named.cancel_requested(reason, times.schedule)


def _result(
    work: UUID, row: Any, meant: _Meant, named: NamedWork | None, withdrawn: bool
) -> CancelResult:
    asked_for = meant.called.get(work, work)
    if row is None:
        if named is not None:
            text = "was on its way, and never starts"
            return CancelResult(id=work, work=work, result="settled", text=f"work {work}: {text}")
        text = f"there is no work and no run {work}: see 'headway work' and 'headway runs'"
        return CancelResult(id=work, result="unknown", text=text)
    match row["state"]:
        case "settled" if row["outcome"] == "cancelled" and named and not named.cancel_repeated:
            # The same request came by the scheduler's outbox, which was quicker.
            word, text = "settled", "never starts"
        case "settled":
            word, text = "already_settled", f"is settled already ({row['outcome']})"
            if withdrawn:
                text += "; the retry of its dead letter that waited is withdrawn"
            elif row["outcome"] == "dead_lettered":
                text += ": acknowledge its dead letter if nobody should see to it any more"
        case "dispatched":
            word, text = "asked_to_stop", f"its run {row['run_id']} is asked to stop"
        case _:
            word, text = "settled", "is cancelled, and never starts"
    return CancelResult(
        id=asked_for,
        result=word,
        work=work,
        run=row["run_id"] if row["state"] == "dispatched" else None,
        manifest=row["manifest"],
        outcome=row["outcome"],
        text=f"work {work}: {text}",
    )


def _ended(run: UUID, row: Any) -> CancelResult:
    return CancelResult(
        id=run,
        result="already_settled",
        work=row["work_id"],
        run=run,
        outcome=row["state"],
        text=f"run {run}: has ended already ({row['state']}); its work is {row['work_id']}",
    )


async def _write_history(
    connection: Connection, records: Sequence[Record], actor: str, times: Times
) -> None:
    """What was asked for is the operator's; what came of it is ours."""
    source = f"operator/{actor or 'unknown'}"
    told = [
        structs.replace(one, source=source) if one.type == WorkCancelRequested.type else one
        for one in records
    ]
    await HISTORY.append(connection, told, now=times.real)
