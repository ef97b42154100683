"""Moving manifests on: decide what is ripe, and record it with its work and its events.

Every change of a manifest's state goes the same way, whether an outcome, an operator or a
declaration brings it about: lock, `account_for` the pause that the change ends, make the
change, and `put_to_rest`, which says when the tick has to look. Firing is the tick's business
(`advance`); only what somebody asks for is let go at once (`let_go`). All of it is one
transaction of the caller.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from uuid import UUID

import asyncpg
from headway_decisions import due
from headway_decisions.due import Verdict
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Connection, json_array
from msgspec import Struct, structs

from headway_scheduler.announce import announce_cancels, announce_work
from headway_scheduler.ledger import LedgerRow, rows_of
from headway_scheduler.manifest import Manifest, UnreadableManifest, read_manifests
from headway_scheduler.store import OUTBOX, manifests, occurrences, works

logger = logging.getLogger(__name__)

# When a manifest that could not be judged is looked at again.
_PUT_OFF = timedelta(minutes=5)

# How many manifests are recorded together, and how many are judged in one breath.
_PORTION = 500
_BREATH = 25

Rule = Callable[..., Verdict]
Judged = list[tuple[Manifest, Verdict]]

# Faults of one row, not of the database: the others can still be recorded.
_FAULTS_OF_A_ROW = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError)


class Advanced(Struct, frozen=True, kw_only=True):
    """What moving on came to."""

    queued: int = 0
    skipped: int = 0

    def __add__(self, other: "Advanced") -> "Advanced":
        return Advanced(queued=self.queued + other.queued, skipped=self.skipped + other.skipped)


async def account_for(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    until: datetime | Mapping[UUID, datetime],
    now: datetime,
    otherwise: str | None = None,
) -> None:
    """Skip what came due during a pause that is about to end; the manifests are locked.

    What is not paused is left to be judged. With `otherwise` it is skipped too, for that
    reason, and so is what only its jitter holds back.
    """
    rows: list[LedgerRow] = []
    moved: list[due.ManifestView] = []
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
    await _move_on(
        connection,
        [
            Verdict(manifest=one.id, next_due_at=one.next_due_at, seen_success=one.seen_success)
            for one in moved
        ],
    )


def _account(
    view: due.ManifestView, until: datetime, otherwise: str | None
) -> tuple[due.ManifestView, list[due.Entry]]:
    reason = due.pause(view) or otherwise
    if reason is None:
        return view, []
    if otherwise is not None:
        view = structs.replace(view, jitter_seconds=0.0)
    return due.account(view, reason, until=until)


async def put_to_rest(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> None:
    """Decide nothing about manifests that are locked, but say when to look at them."""
    troubles: dict[UUID, str] = {}
    found = await read_manifests(connection, ids, now=now)
    judged = await _judge(found, due.rest, troubles, now)
    await _move_on(connection, [verdict for _, verdict in judged])
    await _put_off(connection, troubles, now)


async def advance(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> Advanced:
    """Decide all that is ripe for manifests that are locked, and record it."""
    return await _decide(connection, ids, due.judge, now)


async def let_go(connection: Connection, ids: Iterable[UUID], *, now: datetime) -> Advanced:
    """Queue only what is owed by manifests that are locked."""
    return await _decide(connection, ids, due.release, now)


async def _decide(
    connection: Connection, ids: Iterable[UUID], rule: Rule, now: datetime
) -> Advanced:
    """Judge in portions: while the database records one, the next is judged."""
    found = await read_manifests(connection, ids, now=now)
    portions = [found[start : start + _PORTION] for start in range(0, len(found), _PORTION)]
    troubles: dict[UUID, str] = {}
    recorded = Advanced()
    judging: asyncio.Task[Judged] | None = None
    try:
        for portion, following in zip_longest(portions, portions[1:]):
            judged = await (judging or _judge(portion, rule, troubles, now))
            judging = (
                asyncio.create_task(_judge(following, rule, troubles, now)) if following else None
            )
            recorded += await _record_all(connection, judged, troubles, now)
    finally:
        await end([judging] if judging else [])
    await _put_off(connection, troubles, now)
    return recorded


async def _judge(
    portion: Sequence[Manifest | UnreadableManifest],
    rule: Rule,
    troubles: dict[UUID, str],
    now: datetime,
) -> Judged:
    """Ask the rules about each manifest; one that cannot be judged is in trouble."""
    judged: Judged = []
    for number, manifest in enumerate(portion, start=1):
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
    connection: Connection,
    judged: Sequence[tuple[Manifest, Verdict]],
    troubles: dict[UUID, str],
    now: datetime,
) -> Advanced:
    """Record verdicts together, or one by one where one of them cannot be recorded."""
    if not judged:
        return Advanced()
    try:
        async with connection.transaction():
            return await _record(connection, judged, now)
    except _FAULTS_OF_A_ROW as error:
        if len(judged) == 1:
            troubles[judged[0][0].view.id] = f"{type(error).__name__}: {error}"
            return Advanced()
    middle = len(judged) // 2
    first = await _record_all(connection, judged[:middle], troubles, now)
    return first + await _record_all(connection, judged[middle:], troubles, now)


async def _record(
    connection: Connection, judged: Sequence[tuple[Manifest, Verdict]], now: datetime
) -> Advanced:
    """Ledger, work, events and next due times."""
    rows = [row for manifest, verdict in judged for row in rows_of(manifest, verdict)]
    fresh = await write_ledger(connection, [row for row in rows if not row.release], now=now)
    fresh |= await _write_releases(connection, [row for row in rows if row.release])
    by_id = {manifest.view.id: manifest for manifest, _ in judged}
    queued = [row for row in rows if row.decision == "queued" and row.key in fresh]
    await queue_work(connection, by_id, queued, now=now)
    await _cancel(connection, by_id, [one for _, one in judged if one.cancel_running], now)
    await _move_on(connection, [verdict for _, verdict in judged])
    await _look_again(connection, judged, queued, now)
    skipped = sum(row.decision == "skipped" for row in rows)
    return Advanced(queued=len(queued), skipped=skipped)


async def _look_again(
    connection: Connection,
    judged: Sequence[tuple[Manifest, Verdict]],
    queued: Sequence[LedgerRow],
    now: datetime,
) -> None:
    """Verdicts whose work did not come about promised an outcome that nobody will tell."""
    made = Counter(row.manifest for row in queued)
    wrong = [
        verdict.manifest
        for _, verdict in judged
        if made[verdict.manifest]
        < len(verdict.releases) + sum(entry.decision == "queued" for entry in verdict.entries)
    ]
    if wrong:
        found = await read_manifests(connection, wrong, now=now)
        await _move_on(
            connection,
            [
                due.rest(due.go_on(manifest.view, now=now), now=now)
                for manifest in found
                if isinstance(manifest, Manifest)
            ],
        )


async def write_ledger(
    connection: Connection, rows: Sequence[LedgerRow], *, now: datetime
) -> set[tuple[UUID, str]]:
    """Write decisions down; returns the keys of those that nobody had written before."""
    if not rows:
        return set()
    written = await connection.fetch(
        occurrences["decide"],
        [row.manifest for row in rows],
        [row.cause for row in rows],
        [row.first_due_at for row in rows],
        [row.last_due_at for row in rows],
        [row.decision for row in rows],
        [row.reason for row in rows],
        [row.work for row in rows],
        now,
        [row.actor for row in rows],
        [row.explicit for row in rows],
        [row.has_input for row in rows],
        json_array(row.input for row in rows),
        [row.not_before for row in rows],
    )
    return {(row["manifest_id"], row["cause"]) for row in written}


async def queue_work(
    connection: Connection,
    by_id: Mapping[UUID, Manifest],
    queued: Sequence[LedgerRow],
    *,
    now: datetime,
) -> None:
    """Note work as outstanding, and announce it."""
    if not queued:
        return
    await connection.execute(
        works["add"],
        [row.work for row in queued],
        [row.manifest for row in queued],
        [row.cause for row in queued],
        [row.slot for row in queued],
        now,
    )
    await OUTBOX.add(
        connection, announce_work([(by_id[row.manifest], row) for row in queued], now=now)
    )


async def _write_releases(
    connection: Connection, rows: Sequence[LedgerRow]
) -> set[tuple[UUID, str]]:
    if not rows:
        return set()
    freed = await connection.fetch(
        occurrences["release"],
        [row.manifest for row in rows],
        [row.cause for row in rows],
        [row.work for row in rows],
        [row.reason for row in rows],
    )
    return {(row["manifest_id"], row["cause"]) for row in freed}


async def _cancel(
    connection: Connection,
    by_id: Mapping[UUID, Manifest],
    verdicts: Sequence[Verdict],
    now: datetime,
) -> None:
    if not verdicts:
        return
    rows = await connection.fetch(works["outstanding_of"], [one.manifest for one in verdicts])
    await OUTBOX.add(
        connection,
        announce_cancels(
            [(by_id[row["manifest_id"]], row["id"], row["round"]) for row in rows],
            reason="a newer occurrence takes its place",
            now=now,
        ),
    )


async def _move_on(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    if verdicts:
        await connection.execute(
            manifests["move_on"],
            [verdict.manifest for verdict in verdicts],
            [verdict.next_due_at for verdict in verdicts],
            [verdict.wake_at for verdict in verdicts],
            [verdict.seen_success for verdict in verdicts],
        )


async def _put_off(connection: Connection, troubles: Mapping[UUID, str], now: datetime) -> None:
    """A manifest that cannot be judged is put off and holds nobody else up."""
    if not troubles:
        return
    for manifest, trouble in troubles.items():
        logger.error("manifest %s cannot be judged: %s", manifest, trouble)
    await connection.execute(
        manifests["put_off"], list(troubles), list(troubles.values()), now + _PUT_OFF
    )
