"""The pass that sends notifications, and the test notification."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_clock import jitter, new_id
from headway_contract import Event
from headway_contract.notifications import Digest, Trial
from headway_decisions.retries.retries import after_failed_notification
from headway_postgres_kit import Database, note
from headway_service_kit.passes import seconds_until
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_scheduler.metrics import NOTIFICATIONS, Sample
from headway_scheduler.notifications.webhook import Webhook
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import SOURCE, audit, columns, notifications, writing

log = get_logger(__name__)

# Notifications that are sent at once.
_BATCH = 4
# How long after its timeout an attempt stays claimed, in case its process died.
_SLACK_SECONDS = 30.0
# Notifications that a digest replaces, and subjects that it names.
_FOLDED = 1000
_SUBJECTS = 100


class Attempt(Struct, frozen=True, kw_only=True):
    """The outcome of one attempt: `state` is the new state of the notification."""

    id: UUID
    type: str
    subject: str
    attempts: int
    state: str
    error: str = ""
    next_attempt_at: datetime | None = None


@dataclass(frozen=True)
class Delivery:
    """Sends notifications for one scheduler process; all schedulers share them."""

    database: Database
    webhook: Webhook
    settings: SchedulerSettings

    async def run_once(self) -> float | None:
        """Send a few notifications that are due; returns how long to rest."""
        await self._fold()
        async with writing(self.database) as (connection, now):
            until = now + timedelta(seconds=self.webhook.timeout + _SLACK_SECONDS)
            claimed = await connection.fetch(notifications["claim"], now, until, _BATCH)
        if claimed:
            await self._finish(await asyncio.gather(*map(self._send, claimed)))
        if len(claimed) == _BATCH:
            return 0.0
        async with self.database.acquire() as connection:
            next_at = await connection.fetchval(notifications["next_attempt"])
            now = await self.database.clock.now(connection)
        return seconds_until(next_at, now)

    async def test(self, actor: str) -> str | None:
        """Send a test notification once; returns why it was not accepted, or `None`."""
        now = await self._now()
        error = await self.webhook.send(
            _event(new_id(), Trial.type, actor, now, Trial(actor=actor))
        )
        kind = f"headway.notification.{'test_failed' if error else 'tested'}.v1"
        entry = (actor, {"error": error} if error else {})
        async with self.database.transaction() as connection:
            await audit(connection, kind, f"operator/{actor}", [entry], now=now)
        return error

    async def _now(self) -> datetime:
        async with self.database.acquire() as connection:
            return await self.database.clock.now(connection)

    async def _fold(self) -> None:
        """Replace many notifications of one type by digests, a thousand by each."""
        burst = self.settings.webhook_burst
        folded = True
        while folded:
            async with writing(self.database) as (connection, now):
                kind = await connection.fetchval(notifications["crowd"], Digest.type, burst)
                terms = (kind, new_id(), Digest.type, _FOLDED, _SUBJECTS, now)
                folded = kind is not None and await connection.fetchval(
                    notifications["fold"], *terms
                )

    async def _send(self, row: Any) -> Attempt:
        event = _event(row["id"], row["type"], row["subject"], row["created_at"], row["data"])
        error = await self.webhook.send(event)
        common = {name: row[name] for name in ("id", "type", "subject", "attempts")}
        if error is None:
            return Attempt(state="delivered", **common)
        again_at = after_failed_notification(
            attempts=row["attempts"],
            created_at=row["created_at"],
            now=await self._now(),
            first_pause=self.settings.webhook_retry_seconds,
            horizon=self.settings.webhook_horizon_hours * 3600,
            spread=jitter(),
        )
        if again_at is None:
            log.error("notification given up", **common, error=error)
            return Attempt(state="given_up", error=error, **common)
        log.warning("notification not accepted; retrying", **common, error=error)
        return Attempt(state="pending", error=error, next_attempt_at=again_at, **common)

    async def _finish(self, attempts: Sequence[Attempt]) -> None:
        """Store the outcomes of attempts, and audit the final ones."""
        async with writing(self.database) as (connection, now):
            outcomes = columns(attempts, "id", "state", "next_attempt_at", "error")
            await connection.execute(notifications["finish"], *outcomes, now)
            for state in ("delivered", "given_up"):
                entries = [
                    (
                        each.subject,
                        {"notification": str(each.id), "type": each.type, "attempts": each.attempts}
                        | ({"error": each.error} if each.error else {}),
                    )
                    for each in attempts
                    if each.state == state
                ]
                kind = f"headway.notification.{state}.v1"
                await audit(connection, kind, SOURCE, entries, now=now)
            for attempt in attempts:
                outcome = "failed" if attempt.state == "pending" else attempt.state
                note(Sample(NOTIFICATIONS, (outcome,)))


def _event(identity: UUID, kind: str, subject: str, at: datetime, data: Any) -> Event:
    return Event(
        specversion="1.0",
        id=str(identity),
        source=SOURCE,
        type=kind,
        subject=subject,
        time=at,
        datacontenttype="application/json",
        data=data,
    )
