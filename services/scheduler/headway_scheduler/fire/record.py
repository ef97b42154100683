"""Record decisions: ledger rows, work, outbox messages and the next times of manifests.

The caller has locked the manifests and opened the transaction.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from headway.define.inputs import schema_id
from headway_contract import Event, event, subjects
from headway_contract.notifications import FiresMissed
from headway_contract.work import WorkQueued
from headway_contract.work_queue import NamedWork
from headway_decisions.firing import due, identity
from headway_decisions.firing.jitter import fire_at
from headway_decisions.firing.manifest_state import MISSED, Verdict
from headway_decisions.timing.cadence import Once
from headway_postgres_kit import Connection, json_array, note
from headway_relay import OutboxMessage, bundled, stamped
from headway_tracing import is_recording, new_trace, traceparent
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler.fire.manifest import LedgerRow, Manifest, read_manifests
from headway_scheduler.fire.outbound_events import announce_cancel, announce_switch
from headway_scheduler.metrics import FIRE_LATENESS, FIRES, SKIPS, Count
from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.store import OUTBOX, SOURCE, columns, manifests, occurrences, works

log = get_logger(__name__)

_REPLACED = "a newer occurrence takes its place"

# Work that follows a parent goes before scheduled work.
DEPENDENT_BOOST = 16
_BY_PARENTS = ("success", "activation")
HIGHEST_PRIORITY = 31

_LEDGER = ("manifest", "cause", "first_due_at", "last_due_at", "decision", "reason", "work")
_NEXT_TIMES = ("manifest", "next_due_at", "wake_at", "seen_success")


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


def announce(decided: Sequence[Decided], *, now: datetime) -> list[OutboxMessage]:
    """Build the messages of queued decisions."""
    queued = [
        queued_work(decision.manifest, row, now=now)
        for decision in decided
        for row in decision.rows
        if row.decision == "queued"
    ]
    return announce_work(queued, now=now)


def announce_work(
    queued: Iterable[tuple[WorkQueued, str | None]], *, now: datetime
) -> list[OutboxMessage]:
    """Announce new work, each with the trace of its cause, bundled by group."""
    ordered = sorted(queued, key=lambda pair: pair[0].group)
    traced = is_recording()
    return [
        message
        for group, members in groupby(ordered, key=lambda pair: pair[0].group)
        for message in bundled(
            subjects.work(group),
            [_work_event(work, now, cause, traced=traced) for work, cause in members],
        )
    ]


def _work_event(work: WorkQueued, now: datetime, cause: str | None, *, traced: bool) -> Event:
    """Build the event of new work; it starts a trace that is linked to its cause."""
    context = None
    if traced:
        source = {"job": work.job} if work.manifest is None else {"manifest": work.manifest}
        with new_trace("decide", cause=cause, **source, work=str(work.work)):
            context = traceparent()
    return event(
        work,
        id=f"{work.work}.{work.round}",
        source=SOURCE,
        subject=work.work,
        time=now,
        traceparent=context,
    )


def queued_work(
    manifest: Manifest, row: LedgerRow, *, now: datetime
) -> tuple[WorkQueued, str | None]:
    """Return the work of a queued decision, and the trace of its cause."""
    assert row.work is not None  # noqa: S101 - only queued decisions are announced
    terms, kind = manifest.terms, identity.kind_of(row.cause)
    within = row.start_within_seconds or terms.start_within_seconds
    start_from = row.due_at or row.not_before or now
    priority = terms.priority if row.priority is None else row.priority
    boost = DEPENDENT_BOOST if kind in _BY_PARENTS else 0
    work = WorkQueued(
        work=row.work,
        manifest_id=row.manifest,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        input=row.input,
        input_schema=schema_id(manifest.input_schema),
        cause=row.cause,
        due_at=identity.occurrence_of(row.cause),
        queued_at=now,
        slot=row.slot,
        not_before=row.not_before,
        terms=terms,
        priority=min(priority + boost, HIGHEST_PRIORITY),
        start_by=None if within is None else start_from + timedelta(seconds=within),
        concurrency_key=row.concurrency_key,
        explicit=row.explicit,
    )
    return work, manifest.parent_traceparent if kind == "success" else row.traceparent


async def record(
    connection: Connection,
    decided: Sequence[Decided],
    messages: Sequence[OutboxMessage] = (),
    *,
    now: datetime,
) -> Advanced:
    """Record decisions; `messages` announce them, if they were built before."""
    rows = [row for decision in decided for row in decision.rows]
    verdicts = [decision.verdict for decision in decided]
    fresh = await _write(connection, rows, verdicts, messages, now)
    if len(fresh) < len(rows) or not messages:
        for row in rows:
            if row.key not in fresh:
                # The ledger held it already, which is not expected: it makes no work.
                log.warning(
                    "duplicate decision ignored",
                    manifest=row.manifest,
                    cause=row.cause,
                    decision=row.decision,
                    due_at=row.first_due_at.isoformat(),
                )
        decided = [
            structs.replace(decision, rows=[row for row in decision.rows if row.key in fresh])
            for decision in decided
        ]
        messages = ()
        await OUTBOX.add(connection, announce(decided, now=now))
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


async def _write(
    connection: Connection,
    rows: Sequence[LedgerRow],
    verdicts: Sequence[Verdict],
    messages: Sequence[OutboxMessage],
    now: datetime,
) -> set[tuple[UUID, str]]:
    """Write decisions, their work and the next times; returns the keys of new decisions.

    The first statement adds the messages to the outbox only if all decisions are new.
    """
    scheduled = [row for row in rows if not row.release]
    releases = [row for row in rows if row.release]
    written = await connection.fetch(
        occurrences["record"],
        now,
        *columns(scheduled, *_LEDGER, "slot"),
        *columns(verdicts, *_NEXT_TIMES),
        *OUTBOX.columns(messages),
    )
    if releases:
        released = columns(releases, "manifest", "cause", "work", "reason", "slot")
        written += await connection.fetch(occurrences["release"], *released, now)
    return {(row["manifest_id"], row["cause"]) for row in written}


async def _cancel(connection: Connection, decided: Sequence[Decided], now: datetime) -> None:
    """Cancel the outstanding work of manifests, because a newer occurrence replaces it."""
    if not decided:
        return
    ids = [decision.verdict.manifest for decision in decided]
    outstanding = [
        NamedWork(**dict(row)) for row in await connection.fetch(works["named"], ids, None)
    ]
    messages = [announce_cancel(work.cancel_requested(_REPLACED, now)) for work in outstanding]
    await OUTBOX.add(connection, messages)
    work_ids = [work.work for work in outstanding]
    await connection.execute(works["note_cancel"], work_ids, _REPLACED, now)


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


def _facts(manifest: Manifest, row: LedgerRow, now: datetime) -> Iterator[Count | Notification]:
    """Yield the facts for metrics and notifications; an owed decision counts when it is queued."""
    if row.decision == "skipped":
        yield Count(SKIPS, (row.reason or "",))
        if row.reason == MISSED:
            missed = FiresMissed(
                manifest=manifest.external_id,
                group=manifest.group,
                first_due_at=row.first_due_at,
                last_due_at=row.last_due_at,
            )
            fact = f"missed {row.manifest} {row.cause}"
            yield Notification(identity=fact, subject=manifest.external_id, data=missed)
    elif row.decision == "queued":
        yield Count(FIRES, (manifest.group, identity.kind_of(row.cause)))
        if row.due_at is not None:
            view = manifest.view
            due_at = fire_at(view.timing, view.external_id, row.due_at, view.jitter_seconds)
            yield Count(FIRE_LATENESS, (manifest.group,), (now - due_at).total_seconds())


async def write_ledger(
    connection: Connection, rows: Sequence[LedgerRow], *, now: datetime
) -> set[tuple[UUID, str]]:
    """Write ledger rows; returns the keys of the rows that are new."""
    if not rows:
        return set()
    written = await connection.fetch(
        occurrences["decide"],
        *columns(rows, *_LEDGER),
        now,
        *columns(rows, "actor", "explicit", "has_input"),
        json_array(row.input for row in rows),
        *columns(rows, "not_before", "priority", "start_within_seconds"),
    )
    fresh = {(row["manifest_id"], row["cause"]) for row in written}
    skipped = [row for row in rows if row.decision == "skipped" and row.key in fresh]
    note(*(Count(SKIPS, (row.reason or "",)) for row in skipped))
    return fresh


async def move_on(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Write the next times of manifests."""
    if verdicts:
        await connection.execute(manifests["move_on"], *columns(verdicts, *_NEXT_TIMES))


async def announce_switches(
    connection: Connection, locked: Sequence[UUID], *, now: datetime
) -> None:
    """Announce which of these manifests were enabled or disabled."""
    rows = await connection.fetch(manifests["switched"], locked)
    await OUTBOX.add(connection, [announce_switch(row, now=now) for row in rows])
