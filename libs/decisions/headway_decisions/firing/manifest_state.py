"""The policies and the state of a manifest, the verdict about it, and the ledger's reasons."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta, Struct, structs

from headway_decisions.timing.timing import Timing

MOST_SLOTS = 1000
MOST_CAUGHT_UP = 1000
LONGEST_JITTER_SECONDS = 86_400


class Misfire(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy for missed fire times.

    `fire_once` fires for the latest of them. `skip` fires only if the latest is no older than the
    threshold. `catch_up` fires for the last `limit` of them in spite of the overlap policy, one
    after the other or as many at once as `allow` permits: only for idempotent jobs.
    """

    policy: Literal["fire_once", "skip", "catch_up"] = "fire_once"
    threshold_seconds: Annotated[float, Meta(ge=0, le=10 * 366 * 86_400)] = 60.0
    limit: Annotated[int, Meta(ge=1, le=MOST_CAUGHT_UP)] = 1


class Overlap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy for fire times while earlier work of the manifest is outstanding.

    `skip` drops them. `queue_one` lets one wait. `allow` lets up to `limit` run at once.
    `cancel_running` cancels the outstanding work and queues the new one after it.
    """

    policy: Literal["skip", "queue_one", "allow", "cancel_running"] = "skip"
    limit: Annotated[int, Meta(ge=1, le=MOST_SLOTS)] = 1

    @property
    def slots(self) -> int:
        """How many pieces of work may be outstanding at once."""
        return self.limit if self.policy == "allow" else 1


# Why a due manifest does not fire.
Hold = Literal[
    "job_retired", "group_disabled", "manifest_disabled", "paused", "blocked_by_dead_letter"
]
JOB_RETIRED = "job_retired"
GROUP_DISABLED = "group_disabled"
MANIFEST_DISABLED = "manifest_disabled"
PAUSED = "paused"

MISSED = "missed"
RETIMED = "retimed"
EXCLUDED = "excluded"
STILL_OUTSTANDING = "still_outstanding"
ONE_ALREADY_WAITS = "one_already_waits"
AWAITS_ROOM = "awaits_room"
COLLAPSED = "collapsed_into_a_later_success"


class Owed(Struct, frozen=True, kw_only=True):
    """A decision that waits for room; an explicit one is a user's request."""

    cause: str
    explicit: bool = False


class Window(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time in which a pause holds a manifest; `ended_at` is `None` while it does.

    `until` is when the pause ends by itself, `by` its author, and `covers` describes its manifests.
    """

    pause: UUID
    since: datetime
    until: datetime | None = None
    ended_at: datetime | None = None
    reason: str = ""
    by: str = ""
    covers: str = ""


class ManifestView(Struct, frozen=True, kw_only=True):
    """The state of a manifest, as far as a decision needs it.

    `slots` are occupied by outstanding work. `owed` decisions wait only for room; the next one that
    waits for its time is due at `next_owed_at`. `settled_at` is when work of it was last settled.
    `parent_success` is the number of the parent's latest success, unless the dependent is dormant;
    `seen_success` is the last one that was decided. `windows` are those of pauses.
    `also_disabled`: the manifest itself is disabled where `hold` names its group.
    """

    id: UUID
    external_id: str
    timing: Timing
    next_due_at: datetime | None = None
    jitter_seconds: float = 0.0
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    hold: Hold | None = None
    also_disabled: bool = False
    slots: tuple[int, ...] = ()
    owed: tuple[Owed, ...] = ()
    next_owed_at: datetime | None = None
    settled_at: datetime | None = None
    parent: UUID | None = None
    parent_success: int | None = None
    seen_success: int = 0
    windows: tuple[Window, ...] = ()


class Entry(Struct, frozen=True, kw_only=True):
    """One row of the ledger; `slot` is the slot of queued work."""

    cause: str
    first_due_at: datetime
    last_due_at: datetime
    decision: Literal["queued", "owed", "skipped"]
    reason: str | None = None
    slot: int = 0


class Release(Struct, frozen=True, kw_only=True):
    """An owed decision that has room now."""

    cause: str
    slot: int


class Verdict(Struct, frozen=True, kw_only=True):
    """New ledger entries and releases, and the next state of the manifest."""

    manifest: UUID
    entries: tuple[Entry, ...] = ()
    releases: tuple[Release, ...] = ()
    cancel_running: bool = False
    next_due_at: datetime | None = None
    wake_at: datetime | None = None
    seen_success: int = 0


def has_room(view: ManifestView) -> bool:
    """Return whether the overlap policy allows another piece of work."""
    return len(view.slots) < view.overlap.slots


def take_slot(view: ManifestView) -> tuple[ManifestView, int]:
    """Occupy the first free slot."""
    slot = next(number for number in range(len(view.slots) + 1) if number not in view.slots)
    return structs.replace(view, slots=(*view.slots, slot)), slot


def hold_of(row: Any) -> Hold | None:
    """Return what keeps the manifest of a row from firing: the widest reason, or `None`."""
    if row["job_retired_at"] is not None:
        return "job_retired"
    if not row["group_enabled"]:
        return "group_disabled"
    if not row["enabled"]:
        return "manifest_disabled"
    if row["paused"]:
        return "paused"
    return None if row["blocked_by"] is None else "blocked_by_dead_letter"
