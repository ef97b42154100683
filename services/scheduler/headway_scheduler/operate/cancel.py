"""Ending work early: of a manifest, of a group, or one piece of it.

The scheduler knows all that is outstanding, also what is still on its way to the dispatcher.
It writes the request into its outbox, so that it is carried out whatever happens, and then asks
the dispatcher for the same at once, to be able to say what became of each. The second telling
finds nothing left to do. What an application has enqueued and nobody has taken up yet is taken up
for that, and never announced: the dispatcher only hears that it is cancelled.
"""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.work_queue import (
    CancelAnswer,
    CancelOutstandingRequest,
    CancelRequest,
    CancelResult,
    NamedWork,
)
from headway_errors import Conflict, Invalid, NotFound, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_postgres_kit import Connection
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler.fire.decide import reschedule_wake
from headway_scheduler.fire.outbound_events import announce_cancel
from headway_scheduler.lookup import find_manifest
from headway_scheduler.store import (
    HISTORY,
    OUTBOX,
    audit,
    enqueued,
    groups,
    lock_manifests,
    occurrences,
    works,
)

log = get_logger(__name__)

CANCELLED = "cancelled"

_AT_ONCE = 500
_PATIENCE = 5.0


class Outstanding(Struct, frozen=True, kw_only=True):
    """What a request has found and asked to end, and how many decisions it has dropped.

    `manifest` is the one that is meant as a whole, if one is.
    """

    works: list[NamedWork]
    manifest: UUID | None = None
    reason: str
    dropped: int = 0


async def cancel(
    connection: Connection, request: CancelOutstandingRequest, *, now: datetime
) -> Outstanding:
    """Ask for all that is outstanding to end early; what is owed is never queued."""
    await _take_up(connection, request, now)
    ids, subject = await _manifests_of(connection, request)
    locked = await lock_manifests(connection, ids)
    rows = await connection.fetch(works["named"], locked, request.work)
    if request.group is not None or (request.work is not None and not locked):
        rows += await connection.fetch(works["named_enqueued"], request.work, request.group)
    reason = request.reason or f"cancelled by {request.actor or 'an operator'}"
    found = [_named(row) for row in rows]
    await OUTBOX.add(
        connection,
        [announce_cancel(work.cancel_requested(reason, now)) for work in found],
    )
    await connection.execute(works["note_cancel"], [one.work for one in found], reason, now)
    dropped = 0
    if request.work is None:
        counts = await connection.fetch(occurrences["drop_owed"], locked, CANCELLED, now)
        dropped = sum(row["dropped"] for row in counts)
        await reschedule_wake(connection, locked, now=now)
    data = {"reason": reason, "works": [one.work for one in found], "dropped": dropped}
    source = f"operator/{request.actor or 'unknown'}"
    await HISTORY.append(
        connection, [audit("headway.work.cancel_asked.v1", subject, source, data, now)], now=now
    )
    meant = ids[0] if request.manifest is not None else None
    return Outstanding(works=found, manifest=meant, reason=reason, dropped=dropped)


async def _take_up(
    connection: Connection, request: CancelOutstandingRequest, now: datetime
) -> None:
    """Make work of what is meant and still waits to be taken up.

    What somebody else takes up at this moment is waited for, and found among the outstanding.
    """
    rows = await connection.fetch(enqueued["lock_waiting"], request.work, request.group)
    if not rows:
        return
    ids, causes = [row["work_id"] for row in rows], [row["cause"] for row in rows]
    await connection.execute(works["add"], ids, [None] * len(ids), causes, [0] * len(ids), now)
    groups_of = [row["group_name"] for row in rows]
    await connection.execute(enqueued["queued"], ids, groups_of, [now] * len(ids), now)


async def ask_dispatcher(
    broker: Broker,
    request: CancelOutstandingRequest,
    outstanding: Outstanding,
    *,
    whole: bool,
) -> CancelAnswer:
    """What became of each; where no dispatcher answers in time, that it will hear of it.

    `whole` asks also for what else the dispatcher knows of the manifest or the group: work without
    a manifest, and dead letters that somebody has just retried, or that are to be as soon as there
    is room. That is asked in the same breath: what ends makes room.
    """
    of_all = CancelRequest(reason=outstanding.reason, actor=request.actor)
    if whole:
        of_all = structs.replace(of_all, group=request.group, manifest_id=outstanding.manifest)
    results: list[CancelResult] = []
    counts: Counter[str] = Counter()
    left = outstanding.works
    more = of_all.group is not None or of_all.manifest_id is not None
    while left or more:
        answer = await _ask(broker, structs.replace(of_all, works=left[:_AT_ONCE]))
        answered = {one.work for one in answer.results}
        left = [one for one in left[_AT_ONCE:] if one.work not in answered]
        more = answer.more
        results += answer.results[: _AT_ONCE - len(results)]
        counts.update(answer.counts)
    return CancelAnswer(results=results, counts=dict(counts), dropped=outstanding.dropped)


async def _ask(broker: Broker, request: CancelRequest) -> CancelAnswer:
    try:
        return await ask(broker, subjects.CANCEL_REQUEST, request, CancelAnswer, timeout=_PATIENCE)
    except RequestFailed as error:
        log.warning(
            "cancel request not answered; the outbox delivers it",
            works=len(request.works),
            error=error,
        )
    text = "no dispatcher answers now; it will hear of it"
    results = [
        CancelResult(
            id=one.work,
            work=one.work,
            manifest=one.manifest,
            result="asked",
            text=f"work {one.work}: {text}",
        )
        for one in request.works
    ]
    return CancelAnswer(results=results, counts={"asked": len(results)} if results else {})


async def _manifests_of(
    connection: Connection, request: CancelOutstandingRequest
) -> tuple[list[UUID], str]:
    """The manifests that a request means, and what the audit calls them."""
    given = [request.manifest, request.group, request.work]
    if sum(one is not None for one in given) != 1:
        raise Invalid("name one manifest, one group, or one piece of work")
    if request.manifest is not None:
        row = await find_manifest(connection, request.manifest)
        return [row["id"]], request.manifest
    if request.group is not None:
        known = await connection.fetch(groups["read"], [request.group])
        if not known:
            raise NotFound(f"there is no group {request.group!r}: see 'headway groups'")
        rows = await connection.fetch(groups["members"], request.group)
        return [row["id"] for row in rows], request.group
    found = await connection.fetchrow(works["find"], request.work)
    if found is None:
        refused = await connection.fetchrow(enqueued["lock_refused"], request.work)
        if refused is not None:
            raise Conflict(
                f"work {request.work} was refused and never starts ({refused['reason']}):"
                f" 'headway dismiss {request.work}' forgets it"
            )
        raise NotFound(
            f"there is no work and no run {request.work}: see 'headway work' and 'headway runs'"
        )
    return [found["manifest_id"]] if found["manifest_id"] else [], str(request.work)


def _named(row: Any) -> NamedWork:
    return NamedWork(
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["external_id"],
        group=row["group_name"],
        cancel_repeated=row["cancel_requested_at"] is not None,
    )
