"""Questions about manifests, groups and the ledger, and their answers. Nothing here changes anything."""

from typing import Any

import msgspec
from headway_contract import subjects
from headway_contract.scheduling import (
    GroupsAnswer,
    GroupsQuestion,
    GroupStatus,
    ManifestsAnswer,
    ManifestsQuestion,
    ManifestStatus,
)
from headway_decisions import timing
from headway_decisions.timing import Timing
from headway_jetstream_kit.controlling import Endpoint, typed
from headway_postgres_kit import Clock, Database

from headway_scheduler.manifest import hold_of
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import groups, manifests


class Questions:
    """Answers questions for one scheduler process."""

    def __init__(self, database: Database, settings: SchedulerSettings, *, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock

    def endpoints(self) -> dict[str, Endpoint]:
        """The subjects on which questions come."""
        return {
            subjects.MANIFESTS_QUESTION: typed(ManifestsQuestion, self.manifests),
            subjects.GROUPS_QUESTION: typed(GroupsQuestion, self.groups),
        }

    async def manifests(self, question: ManifestsQuestion) -> ManifestsAnswer:
        """One page of manifests, in the order of their ids."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(manifests["page"], question.after, question.limit + 1)
        found = [status_of(row) for row in rows[: question.limit]]
        return ManifestsAnswer(manifests=found, more=len(rows) > question.limit)

    async def groups(self, question: GroupsQuestion) -> GroupsAnswer:
        """One page of groups, in the order of their names."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(groups["page"], question.after, question.limit + 1)
        found = [GroupStatus(**dict(row)) for row in rows[: question.limit]]
        return GroupsAnswer(groups=found, more=len(rows) > question.limit)


def status_of(row: Any) -> ManifestStatus:
    """A manifest as clients see it."""
    return ManifestStatus(
        external_id=row["external_id"],
        owner=row["owner"],
        job=row["job"],
        group=row["group_name"],
        enabled=row["enabled"],
        declared=row["disabled_by"] != "pruned",
        next_due_at=row["next_due_at"],
        blocked_by=row["blocked_by"],
        last_outcome=row["last_outcome"],
        last_settled_at=row["last_settled_at"],
        success_number=row["success_number"],
        cadence=_described(row["timing"]),
        zone=row["timing"].get("zone", "UTC"),
        next_fire_at=row["wake_at"],
        held_by=row["trouble"] or hold_of(row),
        outstanding=row["outstanding"],
        owed=row["owed"],
        depends_on=row["parent"],
        dormant=row["dormant"],
    )


def _described(stored: Any) -> str:
    try:
        return timing.describe(msgspec.convert(stored, Timing))
    except (msgspec.ValidationError, ValueError) as error:
        return f"unreadable: {error}"
