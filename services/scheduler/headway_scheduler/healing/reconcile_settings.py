"""What is waited for besides work: dead letters to be resolved, settings, prunes."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_clock import monotonic
from headway_contract import Event, EventData, event
from headway_contract.reconcile import RECONCILE_LIMIT, ReconcileAnswer, ReconcileQuestion, Version
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried
from headway_postgres_kit import Clock, Database

from headway_scheduler.healing.republish import (
    republish_groups,
    republish_jobs,
    republish_prunes,
    republish_switches,
)
from headway_scheduler.outcomes.intake import take_in
from headway_scheduler.store import DECLARE_LOCK, SOURCE, heals, manifests

logger = logging.getLogger(__name__)

Ask = Callable[[ReconcileQuestion], Awaitable[ReconcileAnswer]]

_FIRST_ID = UUID(int=0)

# Whose settings the dispatcher keeps: their names, versions and times, and how they are told.
_SETTINGS = {
    "group": (heals["group_versions"], republish_groups),
    "job": (heals["job_versions"], republish_jobs),
    "manifest": (heals["switch_versions"], republish_switches),
}


class Standing:
    """Asks about what stands open; all of it every now and then, for it is never much.

    Only of letters that block nothing there may be any number, one for each failure that nobody
    sees to: they are asked about page by page, and all at once when there is reason to.
    """

    def __init__(self, database: Database, *, ask: Ask, every: float, clock: Clock) -> None:
        self._database = database
        self._ask = ask
        self._every = every
        self._clock = clock
        self._asked_at: float | None = None
        # Letters that block nothing: the last that was asked about, and whether to ask about all.
        self._asked_through = _FIRST_ID
        self._all_letters = True

    def ask_at_once(self) -> None:
        """Do not wait for the next time."""
        self._asked_at = None
        self._all_letters = True

    async def ask_about(self, may_be_lost: Callable[[datetime], bool]) -> int:
        """Take in what was missed, and tell again what was lost; returns how much of that.

        `may_be_lost` says of a time whether what was told then cannot be on its way any more.
        """
        if self._asked_at is not None and monotonic() - self._asked_at < self._every:
            return 0
        await self._about_blocks()
        await self._about_letters_of_others()
        told_again = await self._about_settings(may_be_lost)
        told_again += await self._about_prunes(may_be_lost)
        self._asked_at = monotonic()
        return told_again

    async def _about_blocks(self) -> None:
        """Unblock manifests whose dead letter was resolved."""
        async for rows in self._pages(heals["blocking"], _FIRST_ID, "id"):
            await self._about_letters(rows)

    async def _about_letters_of_others(self) -> None:
        """Manifests that go on whatever fails learn of retries, too: one may have succeeded."""
        after = _FIRST_ID if self._all_letters else self._asked_through
        self._asked_through = _FIRST_ID
        async for rows in self._pages(heals["not_blocking"], after, "id"):
            await self._about_letters(rows)
            if not self._all_letters and len(rows) == RECONCILE_LIMIT:
                self._asked_through = rows[-1]["id"]
                return
        self._all_letters = False

    async def _about_letters(self, rows: Sequence[Any]) -> None:
        """Take in what became of dead letters."""
        answer = await self._ask(ReconcileQuestion(dead_letters=[row["id"] for row in rows]))
        forgotten = set(answer.forgotten)
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            gone = [_acknowledged(row, now) for row in rows if row["id"] in forgotten]
            resolved: list[DeadLetterRetried | DeadLetterAcknowledged]
            resolved = [*answer.retried, *answer.acknowledged, *gone]
            await take_in(
                connection, [told(one, one.dead_letter, now) for one in resolved], now=now
            )

    async def _about_settings(self, may_be_lost: Callable[[datetime], bool]) -> int:
        """Settings of which an older version is in force, though a newer one was told."""
        told_again = 0
        for kind, (query, retell) in _SETTINGS.items():
            async for rows in self._pages(query, "", "name"):
                versions = [
                    Version(kind=kind, name=row["name"], version=row["version"]) for row in rows
                ]
                answer = await self._ask(ReconcileQuestion(versions=versions))
                outdated = {one.name for one in answer.outdated if one.kind == kind}
                if kind == "job":
                    await self._drop_retired(rows, outdated)
                lost = [
                    row["name"]
                    for row in rows
                    if row["name"] in outdated and may_be_lost(row["changed_at"])
                ]
                if lost:
                    async with self._database.transaction() as connection:
                        now = await self._clock.now(connection)
                        told_again += await retell(connection, lost, now=now)
        return told_again

    async def _drop_retired(self, rows: Sequence[Any], outdated: set[str]) -> None:
        """Delete retired jobs that nothing refers to, once the dispatcher knows that they are."""
        known = [
            row["name"]
            for row in rows
            if row["retired_at"] is not None and row["name"] not in outdated
        ]
        if not known:
            return
        async with self._database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            dropped = await connection.fetch(manifests["drop_retired_jobs"], known)
        if dropped:
            logger.info("retired jobs deleted: %s", ", ".join(row["name"] for row in dropped))

    async def _about_prunes(self, may_be_lost: Callable[[datetime], bool]) -> int:
        told_again = 0
        async for rows in self._pages(heals["pruning"], _FIRST_ID, "id"):
            answer = await self._ask(ReconcileQuestion(prunes=[row["id"] for row in rows]))
            unburied = set(answer.unburied)
            lost = [
                row["id"] for row in rows if row["id"] in unburied and may_be_lost(row["told_at"])
            ]
            async with self._database.transaction() as connection:
                now = await self._clock.now(connection)
                await take_in(
                    connection,
                    [told(one, one.manifest_id, now) for one in answer.confirmed],
                    now=now,
                )
                if lost:
                    told_again += await republish_prunes(connection, lost, now=now)
        return told_again

    async def _pages(self, query: str, after: Any, key: str) -> AsyncIterator[list[Any]]:
        """The rows of a query that takes where to begin and how many it may return."""
        while True:
            async with self._database.acquire() as connection:
                rows = await connection.fetch(query, after, RECONCILE_LIMIT)
            if rows:
                yield rows
            if len(rows) < RECONCILE_LIMIT:
                return
            after = rows[-1][key]


def told(data: EventData, about: UUID, now: datetime) -> Event:
    """What an answer told, in the envelope in which the intake takes it."""
    return event(data, id=f"again.{about}", source=SOURCE, subject=about, time=now)


def _acknowledged(row: Any, now: datetime) -> DeadLetterAcknowledged:
    """A dead letter of which the dispatcher has nothing left was seen to long ago."""
    return DeadLetterAcknowledged(
        dead_letter=row["id"],
        work=_FIRST_ID,
        round=0,
        manifest_id=row["manifest_id"],
        manifest=row["external_id"],
        group=row["group_name"],
        resolved_at=now,
    )
