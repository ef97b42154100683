"""Decide about locked manifests and record the decisions, in the transaction of the caller.

Outcomes, operators and declarations change a manifest in the same four steps: lock it, call
`skip_missed_during_pause`, make the change, call `reschedule_wake`. The tick then fires it
(`advance`). Only triggers and backfills queue work at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from headway_decisions.firing import due, manifest_state
from headway_decisions.firing.manifest_state import Entry, ManifestView, Verdict
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Connection, driver
from headway_relay import OutboxMessage
from headway_tracing.log import get_logger
from msgspec import structs

from headway_scheduler.fire import record
from headway_scheduler.fire.manifest import (
    LedgerRow,
    Manifest,
    UnreadableManifest,
    read_manifest,
    read_manifests,
    read_rows,
    rows_of,
)
from headway_scheduler.store import manifests

log = get_logger(__name__)

# Delay before the next look at a manifest that cannot be judged.
_RETRY_AFTER = timedelta(minutes=5)

# Manifests that are recorded together, and manifests that are judged between two awaits.
_BATCH = 500
_JUDGED_AT_ONCE = 25

Rule = Callable[..., Verdict]

# Faults of one row, not of the database: the other rows can still be recorded.
ROW_FAULTS = (driver.DataError, driver.IntegrityConstraintViolationError)


# Decisions that are ready to be recorded, and the messages that announce them.
_Batch = tuple[list[record.Decided], list[OutboxMessage]]


async def skip_missed_during_pause(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    now: datetime,
    until: datetime | Mapping[UUID, datetime] | None = None,
    otherwise: str | None = None,
) -> None:
    """Skip times that came due during a pause that ends at `until`, by default now.

    A manifest that is not paused only skips its excluded times. With `otherwise` it skips all of
    its due times for that reason, also times that only jitter delays.
    """

    def skip(view: ManifestView) -> tuple[ManifestView, list[Entry]]:
        end = until[view.id] if isinstance(until, Mapping) else until or now
        return _skip_missed(view, end, otherwise)

    await _decide_past(connection, ids, skip, now)


async def leave_parents(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> None:
    """Decide the open successes of parents for dependents that are about to lose them."""
    await _decide_past(connection, ids, partial(due.leave_parent, now=now), now)


async def _decide_past(
    connection: Connection,
    ids: Iterable[UUID],
    rule: Callable[[ManifestView], tuple[ManifestView, list[Entry]]],
    now: datetime,
) -> None:
    """Write the entries by which a rule closes the past of manifests."""
    ids = list(ids)
    if not ids:
        return
    rows: list[LedgerRow] = []
    moved: list[Verdict] = []
    for manifest in await read_manifests(connection, ids, now=now):
        if isinstance(manifest, UnreadableManifest):
            continue
        try:
            view, entries = rule(manifest.view)
        except Exception:
            # Nothing is lost: the times stay undecided until they can be judged.
            log.exception("missed times cannot be judged", manifest=manifest.external_id)
            continue
        if entries:
            verdict = Verdict(
                manifest=view.id,
                entries=tuple(entries),
                next_due_at=view.next_due_at,
                seen_success=view.seen_success,
            )
            rows += rows_of(manifest, verdict)
            moved.append(verdict)
    await record.write_ledger(connection, rows, now=now)
    await record.move_on(connection, moved)


def _skip_missed(
    view: ManifestView, until: datetime, otherwise: str | None
) -> tuple[ManifestView, list[Entry]]:
    reason = due.pause(view) or otherwise
    if reason is None:
        return due.skip_excluded(view, until=until)
    if reason == manifest_state.PAUSED and otherwise is None:
        # Times that come due in a pause window are decided when the window ends.
        return view, []
    if otherwise is not None:
        view = structs.replace(view, jitter_seconds=0.0)
    return due.skip_missed_during_pause(view, reason, until=until)


async def reschedule_wake(
    connection: Connection, ids: Iterable[UUID], *, now: datetime
) -> datetime | None:
    """Set when the tick looks at manifests next, without deciding anything; returns the first."""
    troubles: dict[UUID, str] = {}
    judged = await _judge(await read_rows(connection, ids), due.reschedule_wake, troubles, now)
    await record.move_on(connection, [verdict for _, verdict in judged])
    await _postpone(connection, troubles, now)
    times = [verdict.wake_at for _, verdict in judged]
    return record.earliest([*times, now + _RETRY_AFTER if troubles else None])


async def advance(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    now: datetime,
    rule: Rule = due.judge,
    one_by_one: bool = True,
) -> record.Advanced:
    """Decide about manifests by a rule and record it; `due.queue_owed` only queues owed decisions.

    Judges one batch while the database reads and records another. A manifest that cannot be
    recorded is postponed; without `one_by_one` the fault is raised, which saves the savepoints.
    """
    wanted = sorted(ids)
    batches = [wanted[start : start + _BATCH] for start in range(0, len(wanted), _BATCH)]
    troubles: dict[UUID, str] = {}
    recorded = record.Advanced()
    judging: asyncio.Task[_Batch] | None = None
    try:
        for batch in [*batches, []]:
            rows = await read_rows(connection, batch) if batch else []
            decided, messages = await judging if judging else ([], [])
            judging = asyncio.create_task(_prepare(rows, rule, troubles, now))
            if one_by_one:
                recorded += await _record_all(connection, decided, troubles, now)
            elif decided:
                recorded += await record.record(connection, decided, messages, now=now)
    finally:
        await end([judging] if judging else [])
    await _postpone(connection, troubles, now)
    return recorded + record.Advanced(wake_at=now + _RETRY_AFTER if troubles else None)


async def _prepare(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> _Batch:
    """Judge manifests and build their ledger rows and messages."""
    judged = await _judge(rows, rule, troubles, now)
    await asyncio.sleep(0)
    decided = [
        record.Decided(manifest=manifest, verdict=verdict, rows=list(rows_of(manifest, verdict)))
        for manifest, verdict in judged
    ]
    # A release may find that its decision is no longer owed, so it is announced when recorded: a
    # message starts a trace, which must not start twice.
    releases = any(row.release for decision in decided for row in decision.rows)
    return decided, [] if releases else record.announce(decided, now=now)


async def _judge(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> list[tuple[Manifest, Verdict]]:
    """Judge each manifest by a rule, and collect the troubles of unjudged ones."""
    judged = []
    for number, row in enumerate(rows, start=1):
        manifest = read_manifest(row, now=now)
        if isinstance(manifest, UnreadableManifest):
            troubles[manifest.id] = manifest.trouble
            continue
        try:
            judged.append((manifest, rule(manifest.view, now=now)))
        except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
            troubles[manifest.view.id] = f"{type(error).__name__}: {error}"
        if number % _JUDGED_AT_ONCE == 0:
            # Let the task that talks to the database run.
            await asyncio.sleep(0)
    return judged


async def _record_all(
    connection: Connection,
    decided: Sequence[record.Decided],
    troubles: dict[UUID, str],
    now: datetime,
) -> record.Advanced:
    """Record decisions together; split them in halves where one of them cannot be recorded."""
    if not decided:
        return record.Advanced()
    try:
        async with connection.transaction():
            return await record.record(connection, decided, now=now)
    except ROW_FAULTS as error:
        if len(decided) == 1:
            troubles[decided[0].verdict.manifest] = f"{type(error).__name__}: {error}"
            return record.Advanced()
    middle = len(decided) // 2
    first = await _record_all(connection, decided[:middle], troubles, now)
    return first + await _record_all(connection, decided[middle:], troubles, now)


async def _postpone(connection: Connection, troubles: Mapping[UUID, str], now: datetime) -> None:
    """Postpone manifests that cannot be judged, so that they do not block others."""
    if not troubles:
        return
    for manifest, trouble in troubles.items():
        log.error("manifest cannot be judged", manifest=manifest, trouble=trouble)
    await connection.execute(
        manifests["put_off"], list(troubles), list(troubles.values()), now + _RETRY_AFTER
    )
