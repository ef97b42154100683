"""Cancels: end work early.

Waiting work is settled at once. Dispatched work is marked and never retried; each heartbeat reply
names its run to the worker until the run has ended, and a push names it sooner. An unclaimed
order is withdrawn under the fence of the claim, so exactly one of the two succeeds. Unknown work
is stored as settled, so that it never starts.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.work import WorkCancelRequested
from headway_contract.work_queue import CancelAnswer, CancelRequest, CancelResult, NamedWork
from headway_contract.worker_protocol import CancelPush, CancelRun
from headway_jetstream_kit import Broker
from headway_postgres_kit import Connection, Database, note
from msgspec import Struct, structs

from headway_dispatcher import store
from headway_dispatcher.events import (
    cancel_record,
    outbox_message,
    settled_event,
    settled_record,
    settled_without_run,
)
from headway_dispatcher.metrics import SETTLED, Sample
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.fencing import withdraw_unclaimed
from headway_dispatcher.runs.heartbeats import push_to_worker
from headway_dispatcher.runs.settle import Changes
from headway_dispatcher.store import OUTBOX, Times, cancel_queries, letter_queries, works

_PASS_BATCH = 1000
BATCH = 500
# An answer holds everything that a request can name, and a page; further results are counted.
_MOST_RESULTS = 1500


class _Targets(Struct, frozen=True, kw_only=True):
    """The work that a request names, the live run by which it was named, and ended runs."""

    works: dict[UUID, NamedWork | None]
    run_of: dict[UUID, UUID]
    ended_runs: dict[UUID, Any]
    more: bool


async def cancel(connection: Connection, request: CancelRequest, *, times: Times) -> CancelAnswer:
    """Cancel work for a person; the caller holds the tombstone lock."""
    targets = await _targets(connection, request)
    rows = await connection.fetch(cancel_queries["lock"], sorted(targets.works))
    before = {row["id"]: row for row in rows}
    reason = request.reason or f"cancelled by {request.actor or 'an operator'}"
    requests = [
        stated.cancel_requested(reason, times.schedule)
        for work, named in targets.works.items()
        if (stated := _to_cancel(before.get(work), named)) is not None
    ]
    # Before their slots come free.
    withdrawn = await connection.fetch(letter_queries["withdraw"], list(targets.works))
    changes = Changes()
    await request_cancels(connection, requests, times.schedule, changes)
    source = f"operator/{request.actor or 'unknown'}"
    changes.records = [
        structs.replace(record, source=source)
        if record.type == WorkCancelRequested.type
        else record
        for record in changes.records
    ]
    await changes.write(connection, now=times.schedule, real=times.real)
    kept = {row["work_id"] for row in withdrawn}
    results = [
        _result(work, before.get(work), targets, withdrawn=work in kept) for work in targets.works
    ]
    results += [_ended(run, row) for run, row in targets.ended_runs.items()]
    counts = Counter(result.result for result in results)
    return CancelAnswer(results=results[:_MOST_RESULTS], counts=dict(counts), more=targets.more)


async def request_cancels(
    connection: Connection, requests: Sequence[WorkCancelRequested], now: datetime, changes: Changes
) -> None:
    """Store cancel requests; settle work that waits or is unknown."""
    newest: dict[UUID, WorkCancelRequested] = {}
    for request in requests:
        if request.work not in newest or request.round > newest[request.work].round:
            newest[request.work] = request
    if not newest:
        return
    rows = await connection.fetch(works["lock"], sorted(newest))
    unknown = set(newest) - {row["id"] for row in rows}
    open_rows = [
        row
        for row in rows
        if row["state"] != "settled"
        and row["cancel_requested_at"] is None
        and newest[row["id"]].round >= row["round"]
    ]
    if open_rows:
        await connection.execute(
            works["request_cancel"],
            [row["id"] for row in open_rows],
            [newest[row["id"]].reason for row in open_rows],
            now,
        )
        changes.records += [
            cancel_record(newest[row["id"]], round=row["round"], now=now) for row in open_rows
        ]
    waiting = [
        (row, newest[row["id"]].reason)
        for row in open_rows
        if row["state"] in ("queued", "waiting")
    ]
    await settle.cancel(connection, waiting, now=now, changes=changes)
    await _settle_unknown(connection, [newest[work] for work in unknown], now, changes)


async def _settle_unknown(
    connection: Connection, requests: Sequence[WorkCancelRequested], now: datetime, changes: Changes
) -> None:
    if not requests:
        return
    pruned = await store.pruned_manifests(connection, [each.manifest_id for each in requests])
    stored = [each for each in requests if each.manifest_id not in pruned]
    rows = await connection.fetch(works["add_cancelled"], stored, now)
    added = {row["id"] for row in rows}
    settled = [each for each in requests if each.work in added or each.manifest_id in pruned]
    ends = {each.work: settled_without_run(each, "cancelled", each.reason, now) for each in settled}
    # The job is unknown because the work has not arrived.
    note(*(Sample(SETTLED, (each.group, "", "cancelled")) for each in settled))
    await OUTBOX.add(connection, [outbox_message(settled_event(end)) for end in ends.values()])
    for each in settled:
        if each.work in added:
            changes.records.append(cancel_record(each, round=each.round, now=now, unknown=True))
            changes.records.append(settled_record(ends[each.work]))
    # Another dispatcher queued the rest at this moment.
    left = [each for each in stored if each.work not in added]
    await request_cancels(connection, left, now, changes)


async def push_cancels(database: Database, broker: Broker, name: str) -> float | None:
    """Push to the claimant, or withdraw the order, of every run to be cancelled."""
    async with database.acquire() as connection:
        now = await store.read_now(connection)
        rows = await connection.fetch(works["cancelling"], _PASS_BATCH)
    by_worker: dict[str, list[CancelRun]] = {}
    for row in rows:
        if row["claimed_by"] is not None:
            cancelled = CancelRun(run=row["run_id"], lease=row["lease_id"], reason=row["reason"])
            by_worker.setdefault(row["claimed_by"], []).append(cancelled)
    for worker, runs in by_worker.items():
        await push_to_worker(broker, worker, CancelPush(cancel=runs))
    return await withdraw_unclaimed(
        broker,
        database,
        [row for row in rows if row["claimed_by"] is None],
        {row["run_id"]: row["reason"] for row in rows},
        publisher=name,
        cause="cancelled",
        now=now,
    )


async def _targets(connection: Connection, request: CancelRequest) -> _Targets:
    runs = await connection.fetch(cancel_queries["runs_named"], request.ids)
    live = {row["run_id"]: row["work_id"] for row in runs if not row["ended"]}
    ended = {row["run_id"]: row for row in runs if row["ended"]}
    named: dict[UUID, NamedWork | None] = {
        live.get(each, each): None for each in request.ids if each not in ended
    }
    named |= {work.work: work for work in request.works}
    members: list[Any] = []
    if request.group is not None:
        members += await connection.fetch(cancel_queries["of_group"], request.group, BATCH)
    if request.manifest_id is not None:
        members += await connection.fetch(cancel_queries["of_manifest"], request.manifest_id, BATCH)
    # Without a limit: work that ends on one page would free slots for letters of the next.
    waiting = await connection.fetch(
        cancel_queries["waiting_for_slots"], request.group, request.manifest_id
    )
    named |= {row["id"]: named.get(row["id"]) for row in (*members, *waiting)}
    return _Targets(
        works=named,
        run_of={work: run for run, work in live.items()},
        ended_runs=ended,
        more=len(members) >= BATCH,
    )


def _to_cancel(row: Any, named: NamedWork | None) -> NamedWork | None:
    """Return work with the latest known round; `None` if it is settled or completely unknown."""
    if row is None:
        return named
    if row["state"] == "settled":
        return None
    return NamedWork(
        work=row["id"],
        round=max(row["round"], 1 if named is None else named.round),
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
    )


def _result(work: UUID, row: Any, targets: _Targets, *, withdrawn: bool) -> CancelResult:
    named = targets.works[work]
    if row is None:
        if named is not None:
            text = f"work {work}: had not arrived, and never starts"
            return CancelResult(id=work, work=work, result="settled", text=text)
        text = f"there is no work and no run {work}: see 'headway work' and 'headway runs'"
        return CancelResult(id=work, result="unknown", text=text)
    match row["state"]:
        case "settled" if row["outcome"] == "cancelled" and named and not named.cancel_repeated:
            # The same request arrived earlier through the scheduler's outbox.
            word, text = "settled", "never starts"
        case "settled":
            word, text = "already_settled", f"is settled already ({row['outcome']})"
            if withdrawn:
                text += "; the retry of its dead letter that waited is withdrawn"
            elif row["outcome"] == "dead_lettered":
                text += ": acknowledge its dead letter to close it"
        case "dispatched":
            word, text = "asked_to_stop", f"its run {row['run_id']} is asked to stop"
        case _:
            word, text = "settled", "is cancelled, and never starts"
    return CancelResult(
        id=targets.run_of.get(work, work),
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
