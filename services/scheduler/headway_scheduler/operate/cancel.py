"""Cancel outstanding work: of a manifest, of a group, or one piece of work.

The scheduler knows all outstanding work, also work on its way to the dispatcher. It writes the
requests to its outbox, so that they are certain to arrive, and then also asks the dispatcher
directly, so that the answer can say what happened to each; the messages then change nothing.
Enqueued work that still waits is first made outstanding, and never announced: the dispatcher only
learns that it is cancelled.
"""

from collections import Counter
from datetime import datetime
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
from headway_postgres_kit import Connection, StatementBatch
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler import store
from headway_scheduler.fire.outbound_events import request_cancels
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate.enqueue import make_outstanding

log = get_logger(__name__)

CANCELLED = "cancelled"

_BATCH = 500
_ANSWER_SECONDS = 5.0


class Outstanding(Struct, frozen=True, kw_only=True):
    """Outstanding work that a request cancels, and the number of dropped decisions.

    `manifest` is set if the request names a manifest.
    """

    works: list[NamedWork]
    manifest: UUID | None = None
    reason: str
    dropped: int = 0


async def cancel(
    connection: Connection, request: CancelOutstandingRequest, *, now: datetime
) -> Outstanding:
    """Request to cancel all outstanding work, and drop owed decisions."""
    await _take_up_waiting(connection, request, now)
    ids, subject = await _find_manifests(connection, request)
    locked = await store.lock_manifests(connection, ids)
    rows = await connection.fetch(store.works["named"], locked, request.work)
    if request.group is not None or (request.work is not None and not locked):
        rows += await connection.fetch(store.works["named_enqueued"], request.work, request.group)
    reason = request.reason or f"cancelled by {request.actor or 'an operator'}"
    found = await request_cancels(connection, rows, reason, now=now)
    dropped = 0
    if request.work is None:
        counts = await connection.fetch(store.occurrences["drop_owed"], locked, CANCELLED, now)
        dropped = sum(row["dropped"] for row in counts)
        await reschedule_wake(connection, locked, now=now)
    entry = (
        subject,
        {"reason": reason, "works": [work.work for work in found], "dropped": dropped},
    )
    kind = "headway.work.cancel_asked.v1"
    await store.audit(connection, kind, store.operator(request), [entry], now=now)
    manifest = ids[0] if request.manifest is not None else None
    return Outstanding(works=found, manifest=manifest, reason=reason, dropped=dropped)


async def _take_up_waiting(
    connection: Connection, request: CancelOutstandingRequest, now: datetime
) -> None:
    """Make enqueued work outstanding that the request names and that still waits.

    Work that another scheduler takes up at the same time is waited for, and outstanding then.
    """
    rows = await connection.fetch(store.enqueued["lock_waiting"], request.work, request.group)
    if not rows:
        return
    names = ("work_id", "cause", "group_name")
    ids, causes, groups = ([row[name] for row in rows] for name in names)
    writes = StatementBatch()
    make_outstanding(writes, ids, causes, groups, [now] * len(ids), now=now)
    await writes.send(connection)


async def _find_manifests(
    connection: Connection, request: CancelOutstandingRequest
) -> tuple[list[UUID], str]:
    """Return the manifests that a request names, and the subject of its audit entry."""
    names = [request.manifest, request.group, request.work]
    if sum(name is not None for name in names) != 1:
        raise Invalid("name one manifest, one group, or one piece of work")
    if request.manifest is not None:
        row = await find_manifest(connection, request.manifest)
        return [row["id"]], request.manifest
    if request.group is not None:
        if not await connection.fetch(store.groups["read"], [request.group]):
            raise NotFound(f"there is no group {request.group!r}: see 'headway groups'")
        rows = await connection.fetch(store.groups["members"], request.group)
        return [row["id"] for row in rows], request.group
    found = await connection.fetchrow(store.works["find"], request.work)
    if found is not None:
        return [found["manifest_id"]] if found["manifest_id"] else [], str(request.work)
    refused = await connection.fetchrow(store.enqueued["lock_refused"], request.work)
    if refused is not None:
        raise Conflict(
            f"work {request.work} was refused and never starts ({refused['reason']}):"
            f" 'headway dismiss {request.work}' deletes it"
        )
    raise NotFound(
        f"there is no work and no run {request.work}: see 'headway work' and 'headway runs'"
    )


async def ask_dispatcher(
    broker: Broker, request: CancelOutstandingRequest, outstanding: Outstanding, *, whole: bool
) -> CancelAnswer:
    """Return the result for each piece of work; `asked` if no dispatcher answers in time.

    `whole` also cancels other work of the manifest or group that only the dispatcher knows: work
    without a manifest, and retried dead letters, also if they wait for room. It is the same
    request, because a cancelled run makes room.
    """
    template = CancelRequest(reason=outstanding.reason, actor=request.actor)
    if whole:
        template = structs.replace(template, group=request.group, manifest_id=outstanding.manifest)
    results: list[CancelResult] = []
    counts: Counter[str] = Counter()
    left = outstanding.works
    more = template.group is not None or template.manifest_id is not None
    while left or more:
        answer = await _ask(broker, structs.replace(template, works=left[:_BATCH]))
        answered = {result.work for result in answer.results}
        left = [work for work in left[_BATCH:] if work.work not in answered]
        more = answer.more
        results += answer.results[: _BATCH - len(results)]
        counts.update(answer.counts)
    return CancelAnswer(results=results, counts=dict(counts), dropped=outstanding.dropped)


async def _ask(broker: Broker, request: CancelRequest) -> CancelAnswer:
    try:
        return await ask(
            broker, subjects.CANCEL_REQUEST, request, CancelAnswer, timeout=_ANSWER_SECONDS
        )
    except RequestFailed as error:
        log.warning(
            "cancel request not answered; the outbox delivers it",
            works=len(request.works),
            error=error,
        )
    results = [
        CancelResult(
            id=work.work,
            work=work.work,
            manifest=work.manifest,
            result="asked",
            text=f"work {work.work}: no dispatcher answers now; it receives the request later",
        )
        for work in request.works
    ]
    return CancelAnswer(results=results, counts={"asked": len(results)} if results else {})
