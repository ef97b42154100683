"""Moving manifests on: decide what is ripe, and record it with its work and its events.

Every change of a manifest's state goes the same way, whether an outcome, an operator or a
declaration brings it about: lock, `account_for` the pause that the change ends, make the
change, and `put_to_rest`, which says when the tick has to look. Firing is the tick's business
(`advance`); only what somebody asks for is let go at once (`let_go`). All of it is one
transaction of the caller.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from headway_decisions.firing import due, manifest_state
from headway_decisions.firing.manifest_state import Verdict
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Connection
from headway_relay import OutboxMessage
from msgspec import Struct, structs

from headway_scheduler.fire.ledger import LedgerRow, rows_of
from headway_scheduler.fire.manifest import (
    Manifest,
    UnreadableManifest,
    read_manifest,
    read_manifests,
    read_rows,
)
from headway_scheduler.fire.record import (
    Advanced,
    Decided,
    announce_ahead,
    earliest,
    move_on,
    record,
    write_ledger,
)
from headway_scheduler.store import manifests

__all__ = [
    "FAULTS_OF_A_ROW",
    "account_for",
    "advance",
    "leave_parents",
    "let_go",
    "put_to_rest",
    "write_ledger",
]

logger = logging.getLogger(__name__)

# When a manifest that could not be judged is looked at again.
_PUT_OFF = timedelta(minutes=5)

# How many manifests are recorded together, and how many are judged in one breath.
_PORTION = 500
_BREATH = 25

Rule = Callable[..., Verdict]

# Faults of one row, not of the database: the others can still be recorded.
FAULTS_OF_A_ROW = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)


class _Portion(Struct, frozen=True, kw_only=True):
    """Decisions that are ready to be recorded, and what they tell the dispatcher."""

    decided: list[Decided]
    messages: list[OutboxMessage]


async def account_for(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    until: datetime | Mapping[UUID, datetime],
    now: datetime,
    otherwise: str | None = None,
) -> None:
    """Skip what came due during a pause that is about to end; the manifests are locked.

    What is not paused is left to be judged, except that excluded times are skipped as such. With
    `otherwise` it is skipped too, for that reason, and so is what only its jitter holds back.
    """
    ids = list(ids)
    if not ids:
        return
    rows: list[LedgerRow] = []
    moved: list[manifest_state.ManifestView] = []
    for manifest in await read_manifests(connection, ids, now=now):
        if isinstance(manifest, UnreadableManifest):
            continue
        view = manifest.view
        end = until if isinstance(until, datetime) else until[view.id]
        try:
            view, entries = _account(view, end, otherwise)
        except Exception:
            # It is not lost: what cannot be judged now stays undecided until it can.
            logger.exception("manifest %s cannot be accounted for", manifest.external_id)
            continue
        rows += [LedgerRow.skipped(view.id, entry) for entry in entries]
        moved += [view] if entries else []
    await write_ledger(connection, rows, now=now)
    await move_on(
        connection,
        [
            Verdict(manifest=one.id, next_due_at=one.next_due_at, seen_success=one.seen_success)
            for one in moved
        ],
    )


async def leave_parents(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> None:
    """Decide what parents came to for dependents that are about to lose them, and are locked."""
    decided = []
    for manifest in await read_manifests(connection, ids, now=now):
        if isinstance(manifest, UnreadableManifest):
            continue
        view, entries = due.leave_parent(manifest.view, now=now)
        verdict = Verdict(
            manifest=view.id,
            entries=tuple(entries),
            next_due_at=view.next_due_at,
            seen_success=view.seen_success,
        )
        decided += [(manifest, verdict)] if entries else []
    rows = [row for manifest, verdict in decided for row in rows_of(manifest, verdict)]
    await write_ledger(connection, rows, now=now)
    await move_on(connection, [verdict for _, verdict in decided])


def _account(
    view: manifest_state.ManifestView, until: datetime, otherwise: str | None
) -> tuple[manifest_state.ManifestView, list[manifest_state.Entry]]:
    reason = due.pause(view) or otherwise
    if reason is None:
        return due.skip_excluded(view, until=until)
    if reason == manifest_state.PAUSED and otherwise is None:
        # What came due in a window is decided when that ends, by whichever state comes then.
        return view, []
    if otherwise is not None:
        view = structs.replace(view, jitter_seconds=0.0)
    return due.skip_missed_during_pause(view, reason, until=until)


async def put_to_rest(
    connection: Connection, ids: Iterable[UUID], *, now: datetime
) -> datetime | None:
    """Decide nothing about manifests that are locked, but say when to look at them."""
    troubles: dict[UUID, str] = {}
    judged = await _judge(await read_rows(connection, ids), due.reschedule_wake, troubles, now)
    await move_on(connection, [verdict for _, verdict in judged])
    await _put_off(connection, troubles, now)
    times = [verdict.wake_at for _, verdict in judged]
    return earliest([*times, now + _PUT_OFF if troubles else None])


async def advance(
    connection: Connection, ids: Iterable[UUID], *, now: datetime, one_by_one: bool = True
) -> Advanced:
    """Decide all that is ripe for manifests that are locked, and record it.

    What cannot be recorded is put off, if need be one by one; unless the caller would rather
    have the fault itself, which spares the savepoints.
    """
    return await _decide(connection, ids, due.judge, now, one_by_one=one_by_one)


async def let_go(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> Advanced:
    """Queue only what is owed by manifests that are locked."""
    return await _decide(connection, ids, due.queue_owed, now)


async def _decide(
    connection: Connection,
    ids: Iterable[UUID],
    rule: Rule,
    now: datetime,
    *,
    one_by_one: bool = True,
) -> Advanced:
    """Decide in portions: while the database reads and records some, others are judged."""
    wanted = sorted(ids)
    portions = [wanted[start : start + _PORTION] for start in range(0, len(wanted), _PORTION)]
    troubles: dict[UUID, str] = {}
    recorded = Advanced()
    judging: asyncio.Task[_Portion] | None = None
    try:
        for portion in [*portions, []]:
            rows = await read_rows(connection, portion) if portion else []
            ready = await judging if judging else _Portion(decided=[], messages=[])
            judging = asyncio.create_task(_prepare(rows, rule, troubles, now))
            if one_by_one:
                recorded += await _record_all(connection, ready.decided, troubles, now)
            elif ready.decided:
                recorded += await record(connection, ready.decided, ready.messages, now=now)
    finally:
        await end([judging] if judging else [])
    await _put_off(connection, troubles, now)
    return recorded + Advanced(wake_at=now + _PUT_OFF if troubles else None)


async def _prepare(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> _Portion:
    """All that can be done about manifests before it is written down."""
    judged = await _judge(rows, rule, troubles, now)
    await asyncio.sleep(0)
    decided = [
        Decided(manifest=manifest, verdict=verdict, rows=list(rows_of(manifest, verdict)))
        for manifest, verdict in judged
    ]
    return _Portion(decided=decided, messages=announce_ahead(decided, now=now))


async def _judge(
    rows: Sequence[Any], rule: Rule, troubles: dict[UUID, str], now: datetime
) -> list[tuple[Manifest, Verdict]]:
    """Ask the rules about each manifest; one that cannot be judged is in trouble."""
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
        if number % _BREATH == 0:
            # Let the other task hear what the database has answered meanwhile.
            await asyncio.sleep(0)
    return judged


async def _record_all(
    connection: Connection, decided: Sequence[Decided], troubles: dict[UUID, str], now: datetime
) -> Advanced:
    """Record decisions together, or one by one where one of them cannot be recorded."""
    if not decided:
        return Advanced()
    try:
        async with connection.transaction():
            return await record(connection, decided, now=now)
    except FAULTS_OF_A_ROW as error:
        if len(decided) == 1:
            troubles[decided[0].verdict.manifest] = f"{type(error).__name__}: {error}"
            return Advanced()
    middle = len(decided) // 2
    first = await _record_all(connection, decided[:middle], troubles, now)
    return first + await _record_all(connection, decided[middle:], troubles, now)


async def _put_off(connection: Connection, troubles: Mapping[UUID, str], now: datetime) -> None:
    """A manifest that cannot be judged is put off and holds nobody else up."""
    if not troubles:
        return
    for manifest, trouble in troubles.items():
        logger.error("manifest %s cannot be judged: %s", manifest, trouble)
    await connection.execute(
        manifests["put_off"], list(troubles), list(troubles.values()), now + _PUT_OFF
    )
