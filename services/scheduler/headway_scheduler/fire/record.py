"""Record decisions: ledger rows, work, outbox messages and the next times of manifests.

The caller has locked the manifests and opened the transaction.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_decisions.firing import due, identity
from headway_decisions.firing.jitter import fire_at
from headway_decisions.firing.manifest_state import MISSED, Verdict
from headway_decisions.timing.cadence import Once
from headway_postgres_kit import Connection, json_array, note
from headway_relay import OutboxMessage, stamped
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler.fire.manifest import LedgerRow, Manifest, read_manifests
from headway_scheduler.fire.outbound_events import announce_cancels, announce_switch, announce_work
from headway_scheduler.metrics import Fired, Skipped
from headway_scheduler.notifications.facts import Missed
from headway_scheduler.store import OUTBOX, manifests, occurrences, works

log = get_logger(__name__)

_REPLACED = "a newer occurrence takes its place"


class Advanced(Struct, frozen=True, kw_only=True):
    """Counts of recorded decisions, and when the tick looks at these manifests again.

    `messages` may be handed to the relay; with `left_in_outbox` others are only in the outbox.
    """

    queued: int = 0
    skipped: int = 0
    wake_at: datetime | None = None
    messages: list[OutboxMessage] = []
    left_in_outbox: bool = False

    def __add__(self, other: "Advanced") -> "Advanced":
        return Advanced(
            queued=self.queued + other.queued,
            skipped=self.skipped + other.skipped,
            wake_at=earliest((self.wake_at, other.wake_at)),
            messages=self.messages + other.messages,
            left_in_outbox=self.left_in_outbox or other.left_in_outbox,
        )


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of several times, or `None` if all are `None`."""
    return min((time for time in times if time is not None), default=None)


class Decided(Struct, frozen=True, kw_only=True):
    """The decision about one manifest, and its ledger rows."""

    manifest: Manifest
    verdict: Verdict
    rows: list[LedgerRow]


def announce_ahead(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    """Build the messages before the decisions are recorded; none if some are releases.

    A release may find that its decision is no longer owed, and a message starts a trace, which
    must not start twice.
    """
    if any(row.release for decision in decided for row in decision.rows):
        return []
    return _announce(decided, now=now)


def _announce(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    queued = [
        (decision.manifest, row)
        for decision in decided
        for row in decision.rows
        if row.decision == "queued"
    ]
    return announce_work(queued, now=now)


async def record(
    connection: Connection,
    decided: Sequence[Decided],
    messages: Sequence[OutboxMessage] = (),
    *,
    now: datetime,
) -> Advanced:
    """Record decisions; `messages` are those of `announce_ahead`, if there are any."""
    rows = [row for decision in decided for row in decision.rows]
    verdicts = [decision.verdict for decision in decided]
    releases = [row for row in rows if row.release]
    fresh = await _write_decisions(
        connection, [row for row in rows if not row.release], verdicts, messages, now
    )
    fresh |= await _write_releases(connection, releases, now)
    _log_duplicates(rows, fresh)
    if len(fresh) < len(rows) or not messages:
        decided, messages = [_only(decision, fresh) for decision in decided], ()
        await OUTBOX.add(connection, _announce(decided, now=now))
    to_cancel = [decision for decision in decided if decision.verdict.cancel_running]
    await _cancel(connection, to_cancel, now)
    pairs = [(decision.manifest, row) for decision in decided for row in decision.rows]
    made = Counter(row.manifest for _, row in pairs if row.decision == "queued")
    corrected = await _correct_wakes(connection, verdicts, made, now)
    await _retire(connection, decided, made)
    note(*(fact for manifest, row in pairs for fact in _facts(manifest, row, now)))
    return Advanced(
        queued=made.total(),
        skipped=sum(row.decision == "skipped" for row in rows),
        wake_at=earliest(verdict.wake_at for verdict in [*verdicts, *corrected]),
        messages=stamped(messages),
        left_in_outbox=bool(to_cancel) or (made.total() > 0 and not messages),
    )


def _log_duplicates(rows: Sequence[LedgerRow], fresh: set[tuple[UUID, str]]) -> None:
    """Log decisions that the ledger held already: each made no work, and is not expected."""
    for row in rows:
        if row.key not in fresh:
            log.warning(
                "duplicate decision ignored",
                manifest=row.manifest,
                cause=row.cause,
                decision=row.decision,
                due_at=row.first_due_at.isoformat(),
            )


async def _retire(
    connection: Connection, decided: Sequence[Decided], made: Mapping[UUID, int]
) -> None:
    """Disable one-shots whose time was skipped: no outcome will do that."""
    skipped = [
        decision.verdict.manifest
        for decision in decided
        if decision.verdict.next_due_at is None
        and not made[decision.verdict.manifest]
        and isinstance(decision.manifest.view.timing.cadence, Once)
    ]
    if skipped:
        await connection.fetch(manifests["retire"], skipped)


def _facts(manifest: Manifest, row: LedgerRow, now: datetime) -> Iterator[Fired | Skipped | Missed]:
    """Yield the facts for metrics and notifications; an owed decision counts when it is queued."""
    if row.decision == "skipped":
        yield Skipped(row.reason or "")
        if row.reason == MISSED:
            yield Missed(
                manifest_id=row.manifest,
                cause=row.cause,
                manifest=manifest.external_id,
                group=manifest.group,
                first_due_at=row.first_due_at,
                last_due_at=row.last_due_at,
            )
    elif row.decision == "queued":
        late = None
        if row.due_at is not None:
            view = manifest.view
            late = (
                now - fire_at(view.timing, view.external_id, row.due_at, view.jitter_seconds)
            ).total_seconds()
        yield Fired(manifest.group, identity.kind_of(row.cause), late)


def _only(decided: Decided, fresh: set[tuple[UUID, str]]) -> Decided:
    """Keep the rows that were not in the ledger before."""
    return structs.replace(decided, rows=[row for row in decided.rows if row.key in fresh])


async def _write_decisions(
    connection: Connection,
    rows: Sequence[LedgerRow],
    verdicts: Sequence[Verdict],
    messages: Sequence[OutboxMessage],
    now: datetime,
) -> set[tuple[UUID, str]]:
    """Write scheduled decisions, their work and the next times; returns the new ledger keys.

    The statement adds the messages to the outbox only if all decisions are new.
    """
    if not verdicts:
        return set()
    written = await connection.fetch(
        occurrences["record"],
        now,
        *_decision_columns(rows),
        [row.slot for row in rows],
        *_verdict_columns(verdicts),
        *OUTBOX.columns(messages),
    )
    return {(row["manifest_id"], row["cause"]) for row in written}


async def _write_releases(
    connection: Connection, rows: Sequence[LedgerRow], now: datetime
) -> set[tuple[UUID, str]]:
    if not rows:
        return set()
    freed = await connection.fetch(
        occurrences["release"],
        [row.manifest for row in rows],
        [row.cause for row in rows],
        [row.work for row in rows],
        [row.reason for row in rows],
        [row.slot for row in rows],
        now,
    )
    return {(row["manifest_id"], row["cause"]) for row in freed}


async def _correct_wakes(
    connection: Connection, verdicts: Sequence[Verdict], made: Mapping[UUID, int], now: datetime
) -> list[Verdict]:
    """Recompute the schedule of manifests whose work row was not created."""
    wrong = [
        verdict.manifest
        for verdict in verdicts
        if made[verdict.manifest]
        < len(verdict.releases) + sum(entry.decision == "queued" for entry in verdict.entries)
    ]
    if not wrong:
        return []
    found = await read_manifests(connection, wrong, now=now)
    corrected = [
        due.reschedule_wake(due.after_empty_fire(manifest.view, now=now), now=now)
        for manifest in found
        if isinstance(manifest, Manifest)
    ]
    await move_on(connection, corrected)
    return corrected


async def _cancel(connection: Connection, decided: Sequence[Decided], now: datetime) -> None:
    if not decided:
        return
    by_id = {decision.verdict.manifest: decision.manifest for decision in decided}
    rows = await connection.fetch(works["outstanding_of"], list(by_id))
    await OUTBOX.add(
        connection,
        announce_cancels(
            [(by_id[row["manifest_id"]], row["id"], row["round"]) for row in rows],
            reason=_REPLACED,
            now=now,
        ),
    )
    await connection.execute(works["note_cancel"], [row["id"] for row in rows], _REPLACED, now)


async def write_ledger(
    connection: Connection, rows: Sequence[LedgerRow], *, now: datetime
) -> set[tuple[UUID, str]]:
    """Write ledger rows; returns the keys of the rows that are new."""
    if not rows:
        return set()
    written = await connection.fetch(
        occurrences["decide"],
        *_decision_columns(rows),
        now,
        [row.actor for row in rows],
        [row.explicit for row in rows],
        [row.has_input for row in rows],
        json_array(row.input for row in rows),
        [row.not_before for row in rows],
    )
    fresh = {(row["manifest_id"], row["cause"]) for row in written}
    note(
        *(
            Skipped(row.reason or "")
            for row in rows
            if row.decision == "skipped" and row.key in fresh
        )
    )
    return fresh


async def move_on(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Write the next times of manifests."""
    if verdicts:
        await connection.execute(manifests["move_on"], *_verdict_columns(verdicts))


async def announce_switches(
    connection: Connection, locked: Sequence[UUID], *, now: datetime
) -> None:
    """Announce which of these manifests were enabled or disabled."""
    rows = await connection.fetch(manifests["switched"], locked)
    await OUTBOX.add(connection, [announce_switch(row, now=now) for row in rows])


def _decision_columns(rows: Sequence[LedgerRow]) -> tuple[list[Any], ...]:
    """Return ledger rows as statement parameters."""
    return (
        [row.manifest for row in rows],
        [row.cause for row in rows],
        [row.first_due_at for row in rows],
        [row.last_due_at for row in rows],
        [row.decision for row in rows],
        [row.reason for row in rows],
        [row.work for row in rows],
    )


def _verdict_columns(verdicts: Sequence[Verdict]) -> tuple[list[Any], ...]:
    """Return the next times of manifests as statement parameters."""
    return (
        [verdict.manifest for verdict in verdicts],
        [verdict.next_due_at for verdict in verdicts],
        [verdict.wake_at for verdict in verdicts],
        [verdict.seen_success for verdict in verdicts],
    )
