"""Reconcile everything besides work: dead letters, versions of settings, and prunes."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_clock import monotonic
from headway_contract import Event, EventData, event
from headway_contract.reconcile import RECONCILE_LIMIT, ReconcileAnswer, ReconcileQuestion, Version
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried
from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_scheduler.healing import republish
from headway_scheduler.outcomes.settle import take_in
from headway_scheduler.store import DECLARE_LOCK, SOURCE, heals, manifests, writing

log = get_logger(__name__)

Ask = Callable[[ReconcileQuestion], Awaitable[ReconcileAnswer]]
# Returns whether a message that was announced at some time cannot be on its way any more.
IsLost = Callable[[datetime], bool]

_FIRST_ID = UUID(int=0)

# The queries of the versions of the settings that the dispatcher stores.
_VERSIONS = {
    "group": heals["group_versions"],
    "job": heals["job_versions"],
    "manifest": heals["switch_versions"],
}


@dataclass
class SettingsReconciler:
    """Reconciles all settings, prunes and blocking dead letters at intervals: they are few.

    Dead letters that block nothing may be many: they are reconciled a page at a time, and all of
    them if there is a reason to.
    """

    database: Database
    ask: Ask
    every: float
    _last_run: float | None = None
    # The last dead letter of the last page, and whether to reconcile all pages.
    _last_letter: UUID = _FIRST_ID
    _all_letters: bool = True

    def run_at_once(self) -> None:
        """Let the next run reconcile everything, without waiting for its interval."""
        self._last_run = None
        self._all_letters = True

    async def run(self, is_lost: IsLost) -> int:
        """Take in missed events, and republish lost messages; returns how many."""
        if self._last_run is not None and monotonic() - self._last_run < self.every:
            return 0
        async for rows in self._pages(heals["blocking"], _FIRST_ID, "dead_letter"):
            await self._reconcile_letters(rows)
        await self._reconcile_other_letters()
        republished = await self._reconcile_versions(is_lost)
        republished += await self._reconcile_prunes(is_lost)
        self._last_run = monotonic()
        return republished

    async def _reconcile_other_letters(self) -> None:
        """Reconcile dead letters that block nothing: a retry of them may have succeeded."""
        after = _FIRST_ID if self._all_letters else self._last_letter
        self._last_letter = _FIRST_ID
        async for rows in self._pages(heals["not_blocking"], after, "dead_letter"):
            await self._reconcile_letters(rows)
            if not self._all_letters and len(rows) == RECONCILE_LIMIT:
                self._last_letter = rows[-1]["dead_letter"]
                return
        self._all_letters = False

    async def _reconcile_letters(self, rows: Sequence[Any]) -> None:
        """Take in the resolutions of dead letters."""
        letters = [row["dead_letter"] for row in rows]
        answer = await self.ask(ReconcileQuestion(dead_letters=letters))
        forgotten = set(answer.forgotten)
        async with writing(self.database) as (connection, now):
            # A dead letter that the dispatcher has forgotten was resolved long ago.
            gone = [
                DeadLetterAcknowledged(**dict(row), work=_FIRST_ID, round=0, resolved_at=now)
                for row in rows
                if row["dead_letter"] in forgotten
            ]
            resolved: list[DeadLetterRetried | DeadLetterAcknowledged]
            resolved = [*answer.retried, *answer.acknowledged, *gone]
            events = [received(letter, letter.dead_letter, now) for letter in resolved]
            await take_in(connection, events, now=now)

    async def _reconcile_versions(self, is_lost: IsLost) -> int:
        """Republish settings of which the dispatcher has an older version."""
        republished = 0
        for kind, query in _VERSIONS.items():
            async for rows in self._pages(query, "", "name"):
                versions = [
                    Version(kind=kind, name=row["name"], version=row["version"]) for row in rows
                ]
                answer = await self.ask(ReconcileQuestion(versions=versions))
                outdated = {version.name for version in answer.outdated if version.kind == kind}
                if kind == "job":
                    await self._delete_retired_jobs(rows, outdated)
                lost = [
                    row["name"]
                    for row in rows
                    if row["name"] in outdated and is_lost(row["changed_at"])
                ]
                if lost:
                    async with writing(self.database) as (connection, now):
                        republished += await republish.republish_settings(
                            connection, kind, lost, now=now
                        )
        return republished

    async def _delete_retired_jobs(self, rows: Sequence[Any], outdated: set[str]) -> None:
        """Delete unused retired jobs, once the dispatcher knows that they are retired."""
        known = [
            row["name"]
            for row in rows
            if row["retired_at"] is not None and row["name"] not in outdated
        ]
        if not known:
            return
        async with self.database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            deleted = await connection.fetch(manifests["drop_retired_jobs"], known)
        if deleted:
            log.info("retired jobs deleted", jobs=", ".join(row["name"] for row in deleted))

    async def _reconcile_prunes(self, is_lost: IsLost) -> int:
        republished = 0
        async for rows in self._pages(heals["pruning"], _FIRST_ID, "id"):
            answer = await self.ask(ReconcileQuestion(prunes=[row["id"] for row in rows]))
            unknown = set(answer.unburied)
            lost = [
                row["id"] for row in rows if row["id"] in unknown and is_lost(row["announced_at"])
            ]
            async with writing(self.database) as (connection, now):
                events = [received(prune, prune.manifest_id, now) for prune in answer.confirmed]
                await take_in(connection, events, now=now)
                if lost:
                    republished += await republish.republish_prunes(connection, lost, now=now)
        return republished

    async def _pages(self, query: str, after: Any, key: str) -> AsyncIterator[list[Any]]:
        """Yield the rows of a query that takes its start and its limit, page by page."""
        while True:
            async with self.database.acquire() as connection:
                rows = await connection.fetch(query, after, RECONCILE_LIMIT)
            if rows:
                yield rows
            if len(rows) < RECONCILE_LIMIT:
                return
            after = rows[-1][key]


def received(data: EventData, about: UUID, now: datetime) -> Event:
    """Return data of an answer as an event that the intake takes in."""
    return event(data, id=f"again.{about}", source=SOURCE, subject=about, time=now)
