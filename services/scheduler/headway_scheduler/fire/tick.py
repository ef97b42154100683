"""The tick: queue every manifest that is due, once.

Each occurrence is decided once, in one transaction with its work and its event. The tick sleeps
until the next due time; its cost grows with the number of due manifests, not of all manifests.

`advance` gathers, decides and records for the tick, and for triggers, which queue their work at
once. `reschedule_wake` only sets when the tick looks at manifests that have changed.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_decisions.firing import due
from headway_decisions.firing.manifest_state import ManifestView, Verdict
from headway_decisions.timing.cadence import Once
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Connection, Database, StatementBatch, driver, json_array, note
from headway_relay import Handover, OutboxMessage, stamped
from headway_service_kit.passes import seconds_until
from headway_tracing import span
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler.fire import decide
from headway_scheduler.fire.decide import Decided, LedgerRow, Rule, read_rows
from headway_scheduler.fire.fair_cycles import fair_cycles
from headway_scheduler.fire.outbound_events import request_cancels
from headway_scheduler.store import (
    OUTBOX,
    TICK_LOCK,
    columns,
    leaders,
    manifests,
    occurrences,
    works,
)

log = get_logger(__name__)

# Seconds before a scheduler that does not lead tries again.
_LOST_THE_LOCK = 0.25
# Delay before the next look at a manifest that cannot be judged.
_RETRY_AFTER = timedelta(minutes=5)
# Manifests that are recorded together.
_BATCH = 500

# Faults of one row, not of the database: the other rows can still be recorded.
_ROW_FAULTS = (driver.DataError, driver.IntegrityConstraintViolationError)

_REPLACED = "a newer occurrence takes its place"
_LEDGER = ("manifest", "cause", "first_due_at", "last_due_at", "decision", "reason", "work")
_NEXT_TIMES = ("manifest", "next_due_at", "wake_at", "seen_success")


class TickResult(Struct, frozen=True, kw_only=True):
    """Counts of a tick, and when the next one is due, if that is known."""

    led: bool
    fired: int = 0
    skipped: int = 0
    next_at: datetime | None = None
    rest: float | None = None


class _Seen(Struct, frozen=True):
    """The manifests that are due at a time, and the next wake time of the others."""

    at: datetime
    due: list[UUID]
    next_at: datetime | None


@dataclass
class Tick:
    """Ticks for one scheduler process."""

    database: Database
    holder: str
    max_entries: int | None
    relay: Handover
    _known: bool = False
    # The manifests of the next cycles, if more are due than one cycle takes.
    _ahead: deque[list[UUID]] = field(default_factory=deque)

    async def run_once(self) -> TickResult:
        """Queue every manifest that is due, once."""
        seen = await self._look()
        # The first tick always takes the lead, so that users see the leader before any fire.
        if not seen.due and self._known:
            return TickResult(
                led=True, next_at=seen.next_at, rest=seconds_until(seen.next_at, seen.at)
            )
        try:
            result = await self._fire(seen, one_by_one=False)
        except _ROW_FAULTS:
            result = await self._fire(seen, one_by_one=True)
        self._known = self._known or result.led
        return result

    async def _look(self) -> _Seen:
        """Find due manifests without locking them; `_fire` locks them and reads them again."""
        limit = self.max_entries
        beyond = None if limit is None else limit + 1
        async with self.database.acquire() as connection:
            now = await self.database.clock.now(connection)
            if not self._ahead:
                *rows, later = await connection.fetch(manifests["awake"], now, beyond)
                if limit is None or len(rows) <= limit:
                    return _Seen(now, [row["id"] for row in rows], later["wake_at"])
                self._ahead.extend(await fair_cycles(connection, now, limit))
        return _Seen(now, self._ahead.popleft() if self._ahead else [], now)

    async def _fire(self, seen: _Seen, *, one_by_one: bool) -> TickResult:
        async with self.database.transaction() as connection:
            led = await connection.fetch(leaders["lead"], TICK_LOCK, self.holder, seen.at, seen.due)
            if not led:
                self._ahead.clear()
                return TickResult(led=False, rest=_LOST_THE_LOCK)
            locked = [row["id"] for row in led[1:]]
            with span("tick", due=len(seen.due)):
                now = await self.database.clock.now(connection)
                advanced = await advance(connection, locked, now=now, one_by_one=one_by_one)
            next_at = earliest((seen.next_at, advanced.wake_at))
            rest = seconds_until(next_at, await self.database.clock.now(connection))
        advanced.hand_over(self.relay)
        return TickResult(
            led=True, fired=advanced.queued, skipped=advanced.skipped, next_at=next_at, rest=rest
        )


class Advanced(Struct, frozen=True, kw_only=True):
    """Counts of recorded decisions, and when the tick looks at these manifests again.

    `messages` may be handed to the relay; with `left_in_outbox` others are only in the outbox.
    """

    queued: int = 0
    skipped: int = 0
    wake_at: datetime | None = None
    messages: list[OutboxMessage] = []
    left_in_outbox: bool = False

    def hand_over(self, relay: Handover) -> None:
        """Let the relay publish the messages; they are committed."""
        if self.left_in_outbox:
            relay.call()
        relay.hand(self.messages)

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


async def advance(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    now: datetime,
    rule: Rule = due.judge,
    one_by_one: bool = True,
) -> Advanced:
    """Decide about manifests by a rule and record it; `due.queue_owed` only queues owed decisions.

    Judges one batch while the database reads and records another. A manifest that cannot be
    recorded is postponed; without `one_by_one` the fault is raised, which saves the savepoints.
    """
    wanted = sorted(ids)
    batches = [wanted[start : start + _BATCH] for start in range(0, len(wanted), _BATCH)]
    troubles: dict[UUID, str] = {}
    recorded = Advanced()
    judging: asyncio.Task[tuple[list[Decided], list[OutboxMessage]]] | None = None
    try:
        for batch in [*batches, []]:
            rows = await read_rows(connection, batch) if batch else []
            decided, messages = await judging if judging else ([], [])
            judging = asyncio.create_task(decide.decide(rows, rule, troubles, now))
            if one_by_one:
                recorded += await _record_all(connection, decided, troubles, now)
            elif decided:
                recorded += await record(connection, decided, messages, now=now)
    finally:
        await end([judging] if judging else [])
    await postpone(connection, troubles, now)
    return recorded + Advanced(wake_at=now + _RETRY_AFTER if troubles else None)


async def _record_all(
    connection: Connection,
    decided: Sequence[Decided],
    troubles: dict[UUID, str],
    now: datetime,
) -> Advanced:
    """Record decisions together; split them in halves where one of them cannot be recorded."""
    if not decided:
        return Advanced()
    try:
        async with connection.transaction():
            return await record(connection, decided, now=now)
    except _ROW_FAULTS as error:
        if len(decided) == 1:
            troubles[decided[0].verdict.manifest] = f"{type(error).__name__}: {error}"
            return Advanced()
    middle = len(decided) // 2
    first = await _record_all(connection, decided[:middle], troubles, now)
    return first + await _record_all(connection, decided[middle:], troubles, now)


async def postpone(connection: Connection, troubles: Mapping[UUID, str], now: datetime) -> None:
    """Postpone manifests that cannot be judged, so that they do not block others."""
    if not troubles:
        return
    for manifest, trouble in troubles.items():
        log.error("manifest cannot be judged", manifest=manifest, trouble=trouble)
    await connection.execute(
        manifests["put_off"], list(troubles), list(troubles.values()), now + _RETRY_AFTER
    )


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
        await OUTBOX.add(connection, decide.announce(decided, now=now))
    to_cancel = [verdict.manifest for verdict in verdicts if verdict.cancel_running]
    if to_cancel:
        outstanding = await connection.fetch(works["named"], to_cancel, None)
        await request_cancels(connection, outstanding, _REPLACED, now=now)
    pairs = [(decision.manifest, row) for decision in decided for row in decision.rows]
    made = Counter(row.manifest for _, row in pairs if row.decision == "queued")
    corrected = await _correct_wakes(connection, verdicts, made, now)
    await _retire(connection, decided, made)
    note(*(fact for manifest, row in pairs for fact in decide.facts_of(manifest, row, now)))
    return Advanced(
        queued=made.total(),
        skipped=sum(row.decision == "skipped" for row in rows),
        wake_at=earliest([*(verdict.wake_at for verdict in verdicts), corrected]),
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


async def _correct_wakes(
    connection: Connection, verdicts: Sequence[Verdict], made: Mapping[UUID, int], now: datetime
) -> datetime | None:
    """Recompute the schedule of manifests whose work row was not created."""
    wrong = [
        verdict.manifest
        for verdict in verdicts
        if made[verdict.manifest]
        < len(verdict.releases) + sum(entry.decision == "queued" for entry in verdict.entries)
    ]

    def rule(view: ManifestView, *, now: datetime) -> Verdict:
        return due.reschedule_wake(due.after_empty_fire(view, now=now), now=now)

    return await reschedule_wake(connection, wrong, now=now, rule=rule) if wrong else None


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


async def reschedule_wake(
    connection: Connection,
    ids: Iterable[UUID],
    *,
    now: datetime,
    rule: Rule = due.reschedule_wake,
) -> datetime | None:
    """Set when the tick looks at manifests next, without deciding anything; returns the first."""
    troubles: dict[UUID, str] = {}
    judged = await decide.judge(await read_rows(connection, ids), rule, troubles, now)
    await move_on(connection, [verdict for _, verdict in judged])
    await postpone(connection, troubles, now)
    times = [verdict.wake_at for _, verdict in judged]
    return earliest([*times, now + _RETRY_AFTER if troubles else None])


async def write_ledger(
    connection: Connection, rows: Sequence[LedgerRow], *, now: datetime
) -> set[tuple[UUID, str]]:
    """Write ledger rows; returns the keys of the rows that are new."""
    if not rows:
        return set()
    written = await connection.fetch(occurrences["decide"], *_ledger_columns(rows, now))
    fresh = {(row["manifest_id"], row["cause"]): row for row in written}
    for row in rows:
        if row.decision == "skipped" and row.key in fresh:
            names = fresh[row.key]
            note(*decide.skip_facts(row, names["external_id"], names["group_name"]))
    return set(fresh)


def _ledger_columns(rows: Sequence[LedgerRow], now: datetime) -> tuple[Any, ...]:
    return (
        *columns(rows, *_LEDGER),
        now,
        *columns(rows, "actor", "explicit", "has_input"),
        json_array(row.input for row in rows),
        *columns(rows, "not_before", "priority", "start_within_seconds"),
    )


def decide_to(
    writes: StatementBatch, row: LedgerRow, verdict: Verdict | None, *, now: datetime
) -> None:
    """Write a new decision as part of a batch, with its work and the next times of its manifest."""
    writes.add(occurrences["decide"], *_ledger_columns([row], now))
    if row.decision == "queued":
        writes.add(works["add"], *columns([row], "work", "manifest", "cause", "slot"), now)
    if verdict is not None:
        writes.add(manifests["move_on"], *columns([verdict], *_NEXT_TIMES))


async def move_on(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Write the next times of manifests."""
    if verdicts:
        await connection.execute(manifests["move_on"], *columns(verdicts, *_NEXT_TIMES))
