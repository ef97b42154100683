"""The pass that sends notifications, and the test that somebody asks for."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_clock import jitter, new_id
from headway_contract import Event
from headway_contract.notifications import Digest, Trial
from headway_decisions.retries.retries import after_failed_notification
from headway_history import Record
from headway_postgres_kit import Clock, Database, note
from msgspec import Struct

from headway_scheduler.metrics import Notified
from headway_scheduler.notifications.webhook import Webhook
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import HISTORY, SOURCE, audit, notifications

logger = logging.getLogger(__name__)

# How many are sent at once, and how long others keep off one whose sender may have died.
_AT_ONCE = 4
_SLACK_SECONDS = 30.0
# How many notifications a digest stands for, and how many subjects it names.
_FOLDED = 1000
_SUBJECTS = 100


class Attempt(Struct, frozen=True, kw_only=True):
    """How one attempt ended: `state` is what becomes of the notification."""

    id: UUID
    type: str
    subject: str
    attempts: int
    state: str
    error: str = ""
    next_attempt_at: datetime | None = None


class Delivery:
    """Sends notifications for one scheduler process; all schedulers share them."""

    def __init__(
        self, database: Database, webhook: Webhook, settings: SchedulerSettings, *, clock: Clock
    ) -> None:
        self._database = database
        self._webhook = webhook
        self._settings = settings
        self._clock = clock

    async def run_once(self) -> float | None:
        """Send what is due, a few at a time; returns how long to rest."""
        await self._fold()
        claimed = await self._claim()
        if claimed:
            attempts = await asyncio.gather(*(self._send(row) for row in claimed))
            await self._finish(attempts)
        if len(claimed) == _AT_ONCE:
            return 0.0
        async with self._database.acquire() as connection:
            next_at = await connection.fetchval(notifications["next_attempt"])
            now = await self._clock.now(connection)
        return None if next_at is None else max(0.0, (next_at - now).total_seconds())

    async def test(self, actor: str) -> str | None:
        """Send a test notification once; returns why it was not taken, or `None` if it was."""
        async with self._database.acquire() as connection:
            now = await self._clock.now(connection)
        sent = _event(new_id(), Trial.type, actor, now, Trial(actor=actor))
        error = await self._webhook.send(sent)
        async with self._database.transaction() as connection:
            kind = "test_failed" if error else "tested"
            data = {"error": error} if error else {}
            record = _audit(kind, actor, f"operator/{actor}", data, now)
            await HISTORY.append(connection, [record], now=now)
        return error

    async def _fold(self) -> None:
        """Put digests in place of crowds: one for each type and thousand, in turn."""
        burst = self._settings.webhook_burst
        folded = True
        while folded:
            async with self._database.transaction() as connection:
                now = await self._clock.now(connection)
                crowd = await connection.fetchval(notifications["crowd"], Digest.type, burst)
                terms = (crowd, new_id(), Digest.type, _FOLDED, _SUBJECTS, now)
                folded = crowd is not None and await connection.fetchval(
                    notifications["fold"], *terms
                )

    async def _claim(self) -> list[Any]:
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            until = now + timedelta(seconds=self._webhook.timeout + _SLACK_SECONDS)
            rows: list[Any] = await connection.fetch(notifications["claim"], now, until, _AT_ONCE)
        return rows

    async def _send(self, row: Any) -> Attempt:
        sent = _event(row["id"], row["type"], row["subject"], row["created_at"], row["data"])
        error = await self._webhook.send(sent)
        common = {name: row[name] for name in ("id", "type", "subject", "attempts")}
        if error is None:
            return Attempt(state="delivered", **common)
        async with self._database.acquire() as connection:
            now = await self._clock.now(connection)
        again_at = after_failed_notification(
            attempts=row["attempts"],
            created_at=row["created_at"],
            now=now,
            first_pause=self._settings.webhook_retry_seconds,
            horizon=self._settings.webhook_horizon_hours * 3600,
            spread=jitter(),
        )
        if again_at is None:
            logger.error(
                "notification given up after %d attempts: %s of %s: %s",
                *(row["attempts"], row["type"], row["subject"], error),
            )
            return Attempt(state="given_up", error=error, **common)
        logger.warning("notification not taken: %s of %s: %s", row["type"], row["subject"], error)
        return Attempt(state="pending", error=error, next_attempt_at=again_at, **common)

    async def _finish(self, attempts: Sequence[Attempt]) -> None:
        """Write down how attempts ended, and put final outcomes into the audit."""
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            await connection.execute(
                notifications["finish"],
                [attempt.id for attempt in attempts],
                [attempt.state for attempt in attempts],
                [attempt.next_attempt_at for attempt in attempts],
                [attempt.error for attempt in attempts],
                now,
            )
            records = [_outcome(attempt, now) for attempt in attempts if attempt.state != "pending"]
            await HISTORY.append(connection, records, now=now)
            note(*(Notified(attempt.state) for attempt in attempts))


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


def _outcome(attempt: Attempt, now: datetime) -> Record:
    data: dict[str, Any] = {
        "notification": str(attempt.id),
        "type": attempt.type,
        "attempts": attempt.attempts,
    }
    data |= {"error": attempt.error} if attempt.error else {}
    return _audit(attempt.state, attempt.subject, SOURCE, data, now)


def _audit(kind: str, subject: str, source: str, data: dict[str, Any], now: datetime) -> Record:
    return audit(f"headway.notification.{kind}.v1", subject, source, data, now)
