"""What a tick does with one manifest whose time has come."""

from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_decisions import wall_clock
from headway_decisions.cadence import Cadence


class ManifestView(Struct, frozen=True, kw_only=True):
    """What the decision needs to know of a manifest."""

    id: UUID
    cadence: Cadence
    zone: str
    next_due_at: datetime
    group_enabled: bool = True
    blocked_by: UUID | None = None
    outstanding: UUID | None = None


class Stretch(Struct, frozen=True):
    """Occurrences from `first` to `last`, decided together."""

    first: datetime
    last: datetime


class Fire(Struct, frozen=True, kw_only=True):
    """Queue work for the occurrence at `due_at`; `missed` came before it and is skipped."""

    manifest: UUID
    due_at: datetime
    missed: Stretch | None
    next_due_at: datetime | None


class Skip(Struct, frozen=True, kw_only=True):
    """Record that the occurrence at `due_at`, and those missed before, make no work."""

    manifest: UUID
    due_at: datetime
    reason: str
    missed: Stretch | None
    next_due_at: datetime | None


class NotDue(Struct, frozen=True, kw_only=True):
    """Its time has not come."""

    manifest: UUID


Verdict = Fire | Skip | NotDue


def judge(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide the latest occurrence up to `now`; earlier undecided ones count as missed.

    A manifest that was due while nobody looked fires once, for its latest occurrence:
    a nightly job survives a restart, and a minutely one does not run sixty times.
    """
    if view.next_due_at > now:
        return NotDue(manifest=view.id)
    zone = ZoneInfo(view.zone)
    due_at = wall_clock.latest_between(view.cadence, zone, view.next_due_at, now)
    due_at = due_at or view.next_due_at
    missed = _missed(view, zone, due_at)
    next_due_at = wall_clock.next_after(view.cadence, zone, due_at)
    reason = _held_back(view)
    if reason is not None:
        return Skip(
            manifest=view.id,
            due_at=due_at,
            reason=reason,
            missed=missed,
            next_due_at=next_due_at,
        )
    return Fire(manifest=view.id, due_at=due_at, missed=missed, next_due_at=next_due_at)


def _held_back(view: ManifestView) -> str | None:
    if not view.group_enabled:
        return "group_disabled"
    if view.blocked_by is not None:
        return "blocked_by_dead_letter"
    if view.outstanding is not None:
        return "still_outstanding"
    return None


def _missed(view: ManifestView, zone: ZoneInfo, due_at: datetime) -> Stretch | None:
    if due_at == view.next_due_at:
        return None
    last = wall_clock.latest_between(
        view.cadence, zone, view.next_due_at, due_at - timedelta(microseconds=1)
    )
    return Stretch(view.next_due_at, last or view.next_due_at)
