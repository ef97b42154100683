"""Manifests as the rules see them, and what is decided about them, in minutes from noon on."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from headway_decisions.firing import identity
from headway_decisions.firing.manifest_state import Entry, ManifestView, Overlap
from headway_decisions.timing.cadence import Every
from headway_decisions.timing.timing import Timing

MANIFEST = UUID(int=1)
NAME = "m"
WORK = UUID(int=2)
NOON = datetime(2027, 5, 1, 12, tzinfo=UTC)
MINUTELY = Timing(cadence=Every(60))
QUEUE_ONE = Overlap(policy="queue_one")
CANCEL = Overlap(policy="cancel_running")


def view(**changes) -> ManifestView:
    return ManifestView(
        **({"id": MANIFEST, "external_id": NAME, "timing": MINUTELY, "next_due_at": NOON} | changes)
    )


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def noon(after: float = 0) -> datetime:
    return NOON + minutes(after)


def fired(at: float, *, slot: int = 0) -> Entry:
    return Entry(
        cause=identity.due_cause(noon(at)),
        first_due_at=noon(at),
        last_due_at=noon(at),
        decision="queued",
        slot=slot,
    )


def owed(at: float) -> Entry:
    return Entry(
        cause=identity.due_cause(noon(at)),
        first_due_at=noon(at),
        last_due_at=noon(at),
        decision="owed",
        reason="still_outstanding",
    )


def skipped(first: float, last: float, reason: str) -> Entry:
    return Entry(
        cause=identity.stretch_cause(noon(first), noon(last)),
        first_due_at=noon(first),
        last_due_at=noon(last),
        decision="skipped",
        reason=reason,
    )


def success(number: int) -> Entry:
    return Entry(
        cause=f"success:{WORK}:{number}", first_due_at=NOON, last_due_at=NOON, decision="queued"
    )
