"""Writing decisions down: ledger, work, events, and how the manifests go on.

All of it belongs to the transaction of whoever decided, under the locks of the manifests.
"""

import logging
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
from msgspec import Struct, structs

from headway_scheduler.fire.ledger import LedgerRow
from headway_scheduler.fire.manifest import Manifest, read_manifests
from headway_scheduler.fire.outbound_events import announce_cancels, announce_work
from headway_scheduler.metrics import Fired, Skipped
from headway_scheduler.notifications.facts import Missed
from headway_scheduler.store import OUTBOX, manifests, occurrences, works

logger = logging.getLogger(__name__)

_REPLACED = "a newer occurrence takes its place"


class Advanced(Struct, frozen=True, kw_only=True):
    """What moving on came to, and when the tick has to look at these manifests again.

    `messages` tell of it and may be handed to the relay; others are only in the outbox.
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
    """The first of several times, some of which may never come."""
    return min((time for time in times if time is not None), default=None)


class Decided(Struct, frozen=True, kw_only=True):
    """What was decided about one manifest, and what the ledger is told of it."""

    manifest: Manifest
    verdict: Verdict
    rows: list[LedgerRow]


def announce_ahead(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    """The messages of decisions that are about to be recorded; none if some are releases.

    Whether what is released is still owed is not known before, and a trace begins with what is
    announced: it must not begin twice.
    """
    if any(row.release for one in decided for row in one.rows):
        return []
    return _announce(decided, now=now)


def _announce(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    """The messages that tell of the work that decisions make, if nobody made it before."""
    work = [(one.manifest, row) for one in decided for row in one.rows if row.decision == "queued"]
    return announce_work(work, now=now)


async def record(
    connection: Connection,
    decided: Sequence[Decided],
    messages: Sequence[OutboxMessage] = (),
    *,
    now: datetime,
) -> Advanced:
    """Write decisions down; `messages` are those of `announce_ahead`, if they were made."""
    rows = [row for one in decided for row in one.rows]
    verdicts = [one.verdict for one in decided]
    releases = [row for row in rows if row.release]
    fresh = await _write_decisions(
        connection, [row for row in rows if not row.release], verdicts, messages, now
    )
    fresh |= await _write_releases(connection, releases, now)
    _log_duplicates(rows, fresh)
    if len(fresh) < len(rows) or not messages:
        decided, messages = [_only(one, fresh) for one in decided], ()
        await OUTBOX.add(connection, _announce(decided, now=now))
    to_cancel = [one for one in decided if one.verdict.cancel_running]
    await _cancel(connection, to_cancel, now)
    made = Counter(row.manifest for one in decided for row in one.rows if row.decision == "queued")
    corrected = await _look_again(connection, verdicts, made, now)
    await _retire(connection, decided, made)
    note(*(fact for one in decided for row in one.rows for fact in _facts(one.manifest, row, now)))
    return Advanced(
        queued=made.total(),
        skipped=sum(row.decision == "skipped" for row in rows),
        wake_at=earliest(verdict.wake_at for verdict in [*verdicts, *corrected]),
        messages=stamped(messages),
        left_in_outbox=bool(to_cancel) or (made.total() > 0 and not messages),
    )


def _log_duplicates(rows: Sequence[LedgerRow], fresh: set[tuple[UUID, str]]) -> None:
    """Log decisions that the ledger held already: each made nothing, and should not come twice."""
    for row in rows:
        if row.key not in fresh:
            logger.warning(
                "duplicate decision ignored: manifest=%s cause=%s decision=%s due_at=%s",
                row.manifest,
                row.cause,
                row.decision,
                row.first_due_at.isoformat(),
            )


async def _retire(
    connection: Connection, decided: Sequence[Decided], made: Mapping[UUID, int]
) -> None:
    """One-shots whose time was skipped have had their shot: no outcome will come to say so."""
    skipped = [
        one.verdict.manifest
        for one in decided
        if one.verdict.next_due_at is None
        and not made[one.verdict.manifest]
        and isinstance(one.manifest.view.timing.cadence, Once)
    ]
    if skipped:
        await connection.fetch(manifests["retire"], skipped)


def _facts(manifest: Manifest, row: LedgerRow, now: datetime) -> Iterator[Fired | Skipped | Missed]:
    """A decision as it is counted and told; what is owed is counted when it is let go."""
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
    """The part of it that nobody had decided before."""
    return structs.replace(decided, rows=[row for row in decided.rows if row.key in fresh])


async def _write_decisions(
    connection: Connection,
    rows: Sequence[LedgerRow],
    verdicts: Sequence[Verdict],
    messages: Sequence[OutboxMessage],
    now: datetime,
) -> set[tuple[UUID, str]]:
    """Write down what schedules decided, the work that it makes, and how the manifests go on.

    The messages go out with it if all that is decided is new.
    """
    if not verdicts:
        return set()
    written = await connection.fetch(
        occurrences["record"],
        now,
        *_decision_columns(rows),
        [row.slot for row in rows],
        *_as_columns(verdicts),
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


async def _look_again(
    connection: Connection, verdicts: Sequence[Verdict], made: Mapping[UUID, int], now: datetime
) -> list[Verdict]:
    """Correct verdicts whose work did not come about: they promised an outcome nobody will tell."""
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
    by_id = {one.verdict.manifest: one.manifest for one in decided}
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
    """Write decisions down; returns the keys of those that nobody had written before."""
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
    """Say how manifests go on; they are locked."""
    if verdicts:
        await connection.execute(manifests["move_on"], *_as_columns(verdicts))


def _decision_columns(rows: Sequence[LedgerRow]) -> tuple[list[Any], ...]:
    """What was decided, as the parameters of a statement."""
    return (
        [row.manifest for row in rows],
        [row.cause for row in rows],
        [row.first_due_at for row in rows],
        [row.last_due_at for row in rows],
        [row.decision for row in rows],
        [row.reason for row in rows],
        [row.work for row in rows],
    )


def _as_columns(verdicts: Sequence[Verdict]) -> tuple[list[Any], ...]:
    """How manifests go on, as the parameters of a statement."""
    return (
        [verdict.manifest for verdict in verdicts],
        [verdict.next_due_at for verdict in verdicts],
        [verdict.wake_at for verdict in verdicts],
        [verdict.seen_success for verdict in verdicts],
    )
