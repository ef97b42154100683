"""A manifest as the scheduler works with it: what decisions need, and what work carries."""

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from headway_contract.work import WorkTerms
from headway_decisions.firing.manifest_state import (
    Hold,
    ManifestView,
    Misfire,
    Overlap,
    Owed,
    Window,
)
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_scheduler.store import manifests


class OwedEntry(Struct, frozen=True, kw_only=True):
    """What an owed decision keeps for the work that it will make."""

    cause: str
    due_at: datetime
    explicit: bool = False
    has_input: bool = False
    input: Any = None
    not_before: datetime | None = None
    traceparent: str | None = None
    priority: int | None = None
    start_within_seconds: float | None = None
    decided_at: datetime | None = None


class Manifest(Struct, frozen=True, kw_only=True):
    """One manifest, locked and read."""

    view: ManifestView
    job: str
    group: str
    input: Any
    input_schema: dict[str, Any] | None
    takes_input: bool
    terms: WorkTerms
    owed: dict[str, OwedEntry]
    # The trace in which its parent succeeded last.
    parent_traceparent: str | None = None

    @property
    def external_id(self) -> str:
        """What people call it."""
        return self.view.external_id


class UnreadableManifest(Struct, frozen=True, kw_only=True):
    """A manifest whose row this program cannot make sense of."""

    id: UUID
    external_id: str
    trouble: str


async def read_manifests(
    connection: Connection, ids: Iterable[UUID], *, now: datetime
) -> list[Manifest | UnreadableManifest]:
    """Manifests that were locked before, in the order of their ids."""
    return [read_manifest(row, now=now) for row in await read_rows(connection, ids)]


async def read_rows(connection: Connection, ids: Iterable[UUID]) -> list[asyncpg.Record]:
    """The rows of manifests, to be made sense of by `read_manifest`."""
    return await connection.fetch(manifests["views"], list(ids))


def hold_of(row: Any) -> Hold | None:
    """What keeps a manifest from firing; the widest reason is the one to tell."""
    if row["job_retired_at"] is not None:
        return "job_retired"
    if not row["group_enabled"]:
        return "group_disabled"
    if not row["enabled"]:
        return "manifest_disabled"
    if row["paused_at"] is not None and row["resumed_at"] is None:
        return "paused"
    return None if row["blocked_by"] is None else "blocked_by_dead_letter"


def window_of(row: Any) -> Window | None:
    """When a manifest was last paused."""
    if row["paused_at"] is None:
        return None
    return Window(since=row["paused_at"], until=row["resumed_at"], reason=row["pause_reason"])


def read_manifest(row: Any, *, now: datetime) -> Manifest | UnreadableManifest:
    """One manifest out of its row."""
    try:
        return _manifest(row, now)
    except msgspec.ValidationError as error:
        return UnreadableManifest(
            id=row["id"], external_id=row["external_id"], trouble=f"its record: {error}"
        )


# Thousands of manifests share few timings, policies and terms.
_timing = lru_cache(maxsize=4096)(msgspec.json.Decoder(Timing).decode)
_misfire = lru_cache(maxsize=256)(msgspec.json.Decoder(Misfire).decode)
_overlap = lru_cache(maxsize=256)(msgspec.json.Decoder(Overlap).decode)
_terms = lru_cache(maxsize=1024)(msgspec.json.Decoder(WorkTerms).decode)


def _manifest(row: Any, now: datetime) -> Manifest:
    owed = [msgspec.convert(one, OwedEntry) for one in row["owed"] or ()]
    later = [one.not_before for one in owed if one.not_before is not None and one.not_before > now]
    view = ManifestView(
        id=row["id"],
        external_id=row["external_id"],
        timing=_timing(row["timing"]),
        next_due_at=row["next_due_at"],
        jitter_seconds=row["jitter_seconds"],
        misfire=_misfire(row["misfire"]),
        overlap=_overlap(row["overlap"]),
        hold=hold_of(row),
        also_disabled=not row["group_enabled"] and not row["enabled"],
        slots=tuple(row["slots"]),
        owed=tuple(
            [Owed(cause=one.cause, explicit=one.explicit) for one in owed if _ripe(one, now)]
        ),
        next_owed_at=min(later, default=None),
        settled_at=row["last_settled_at"],
        parent=row["depends_on"],
        parent_success=None if row["dormant"] else row["parent_success"],
        seen_success=row["seen_success"],
        window=window_of(row),
    )
    return Manifest(
        view=view,
        job=row["job"],
        group=row["group_name"],
        input=row["input"],
        input_schema=row["input_schema"],
        takes_input=row["takes_input"],
        terms=_terms(row["terms"]),
        owed={one.cause: one for one in owed},
        parent_traceparent=row["parent_traceparent"],
    )


def _ripe(owed: OwedEntry, now: datetime) -> bool:
    return owed.not_before is None or owed.not_before <= now
