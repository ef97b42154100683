"""The tick: queue every manifest that is due, once.

One decision for each occurrence, in one transaction with the work and the event that
announces it. The tick sleeps until the next due time; its cost grows with what is due,
not with what exists.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from headway_contract import encode, event, subjects
from headway_contract.work import WorkQueued
from headway_decisions import due, identity
from headway_decisions.due import Fire, NotDue, Skip, Verdict
from headway_postgres_kit import Database
from headway_relay import OutboxMessage
from headway_service_kit.passes import Wakeup
from headway_tracing import new_trace, span, traceparent
from msgspec import Struct

from headway_scheduler import store
from headway_scheduler.store import OUTBOX, Decision, DueManifest, UnreadableManifest

logger = logging.getLogger(__name__)

# How soon a scheduler that lost the lock looks again.
_LOST_THE_LOCK = 0.25
# When a manifest that could not be judged is looked at again.
_PUT_OFF = timedelta(minutes=5)


class TickResult(Struct, frozen=True, kw_only=True):
    """What a tick did, and how long it may rest."""

    led: bool
    fired: int = 0
    skipped: int = 0
    rest: float | None = None


class Tick:
    """Ticks for one scheduler process."""

    def __init__(self, database: Database, *, holder: str, max_entries: int, relay: Wakeup) -> None:
        self._database = database
        self._holder = holder
        self._max_entries = max_entries
        self._relay = relay

    async def run_once(self) -> TickResult:
        """Queue every manifest that is due, once."""
        async with store.leader_transaction(self._database) as tx:
            if tx is None:
                return TickResult(led=False, rest=_LOST_THE_LOCK)
            now = await tx.now()
            manifests = await tx.due_manifests(now, limit=self._max_entries)
            fired = skipped = 0
            if manifests:
                with span("tick", due=len(manifests)):
                    verdicts = [_judge(one, now) for one in manifests]
                    await tx.take_office(self._holder, now)
                    fired = await self._record(tx, manifests, verdicts, now)
                    skipped = sum(isinstance(verdict, Skip) for verdict in verdicts)
            rest = _rest(await tx.next_due_at(), await tx.now())
        if fired:
            self._relay.call()
        return TickResult(led=True, fired=fired, skipped=skipped, rest=rest)

    async def _record(
        self,
        tx: store.TickTransaction,
        manifests: list[DueManifest | UnreadableManifest],
        verdicts: list[Verdict],
        now: datetime,
    ) -> int:
        """Ledger, work, events and next due times, all in the tick's transaction."""
        decisions = [decision for verdict in verdicts for decision in _decisions(verdict)]
        fresh = await tx.decide(decisions, now=now)
        queued = [decision for decision in decisions if decision.work in fresh]
        await tx.add_work(queued, now=now)
        by_id = {one.view.id: one for one in manifests if isinstance(one, DueManifest)}
        await OUTBOX.add(
            tx.connection,
            [_announce(by_id[decision.manifest], decision, now) for decision in queued],
        )
        await tx.move_on(
            {
                verdict.manifest: verdict.next_due_at
                for verdict in verdicts
                if not isinstance(verdict, NotDue)
            }
        )
        return len(queued)


def _judge(manifest: DueManifest | UnreadableManifest, now: datetime) -> Verdict:
    """One verdict; a manifest that cannot be judged is put off and holds nobody else up."""
    if isinstance(manifest, UnreadableManifest):
        return _put_off(manifest.id, manifest.next_due_at, manifest.trouble, now)
    try:
        return due.judge(manifest.view, now=now)
    except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
        trouble = f"{type(error).__name__}: {error}"
        return _put_off(manifest.view.id, manifest.view.next_due_at, trouble, now)


def _put_off(manifest: UUID, due_at: datetime, trouble: str, now: datetime) -> Skip:
    logger.error("manifest %s cannot be judged: %s", manifest, trouble)
    return Skip(
        manifest=manifest,
        due_at=due_at,
        reason=f"cannot be judged: {trouble}",
        missed=None,
        next_due_at=now + _PUT_OFF,
    )


def _decisions(verdict: Verdict) -> list[Decision]:
    """The rows that a verdict writes into the ledger."""
    if isinstance(verdict, NotDue):
        return []
    rows = []
    if verdict.missed is not None:
        rows.append(
            Decision(
                manifest=verdict.manifest,
                cause=identity.missed_cause(verdict.missed.first, verdict.missed.last),
                first_due_at=verdict.missed.first,
                last_due_at=verdict.missed.last,
                reason="missed",
            )
        )
    cause = identity.due_cause(verdict.due_at)
    rows.append(
        Decision(
            manifest=verdict.manifest,
            cause=cause,
            first_due_at=verdict.due_at,
            last_due_at=verdict.due_at,
            work=identity.work_id(verdict.manifest, cause) if isinstance(verdict, Fire) else None,
            reason=verdict.reason if isinstance(verdict, Skip) else None,
        )
    )
    return rows


def _announce(manifest: DueManifest, decision: Decision, now: datetime) -> OutboxMessage:
    """The event that tells the dispatcher about new work."""
    assert decision.work is not None  # noqa: S101 - only queued decisions are announced
    with new_trace("decide", manifest=manifest.external_id, work=str(decision.work)):
        context = traceparent()
    queued = WorkQueued(
        work=decision.work,
        manifest_id=decision.manifest,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        input=manifest.input,
        cause=decision.cause,
        due_at=decision.first_due_at,
        queued_at=now,
        priority=manifest.priority,
        retry=manifest.retry,
        timeout_seconds=manifest.timeout_seconds,
        cancel_grace_seconds=manifest.cancel_grace_seconds,
        on_lost_contact=manifest.on_lost_contact,
    )
    message_id = f"{decision.work}.{queued.round}"
    return OutboxMessage(
        message_id=message_id,
        subject=subjects.work(manifest.group),
        body=encode(
            event(
                queued,
                id=message_id,
                source="headway/scheduler",
                subject=decision.work,
                time=now,
                traceparent=context,
            )
        ),
        traceparent=context,
    )


def _rest(next_due_at: datetime | None, now: datetime) -> float | None:
    return None if next_due_at is None else max(0.0, (next_due_at - now).total_seconds())
