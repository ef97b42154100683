"""Decide about one manifest that is due, or whose state has changed.

A manifest stores its first undecided due time. Every due time from there to now gets a decision:
queued, owed (it is queued as soon as there is room), or skipped with a reason. Consecutive skips
are one ledger entry.

While a manifest is on hold (disabled, blocked, or its work leaves no room) nothing is decided, so a
long hold costs nothing. When it ends, `skip_missed_during_pause` skips all that came due meanwhile,
with the hold as the reason; then `judge` decides the rest in the new state.

A pause by an operator is different: due times in its window are decided when it ends, as if the
scheduler had been down. The misfire policy chooses which of them fire, and the others are skipped
with the window as the reason.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import structs

from headway_decisions.firing import identity
from headway_decisions.firing.manifest_state import (
    AWAITS_ROOM,
    COLLAPSED,
    GROUP_DISABLED,
    JOB_RETIRED,
    MANIFEST_DISABLED,
    ONE_ALREADY_WAITS,
    PAUSED,
    STILL_OUTSTANDING,
    Entry,
    Hold,
    ManifestView,
    Release,
    Verdict,
    has_room,
    take_slot,
)
from headway_decisions.firing.misfires import (
    fire_at,
    judge_due,
    latest_ripe,
    pause_reason,
    skip,
    skip_reason,
)
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Spaced

# Explicit requests pass these holds.
_PASSABLE = (GROUP_DISABLED, MANIFEST_DISABLED, PAUSED)


def pause(view: ManifestView) -> str | None:
    """Return why nothing is decided about a manifest now, or `None`."""
    if view.hold is not None:
        return view.hold
    if has_room(view):
        return None
    if view.overlap.policy in ("queue_one", "cancel_running"):
        return ONE_ALREADY_WAITS if view.owed else None
    return STILL_OUTSTANDING


def skip_missed_during_pause(
    view: ManifestView, reason: str, *, until: datetime
) -> tuple[ManifestView, list[Entry]]:
    """Skip all that came due during a pause; return the manifest's new state and the entries.

    A parent's success is dropped only if the dependent itself is disabled or its job retired. In a
    disabled group, or while the manifest is blocked or running, it stays owed.
    """
    entries = []
    if reason == PAUSED:
        reason = pause_reason(view)
    dropped = _drop_reason(view)
    if dropped is not None and _has_new_success(view):
        assert view.parent_success is not None  # noqa: S101 - only a parent has successes
        entries.append(_successes(view, view.parent_success, until, dropped))
        view = structs.replace(view, seen_success=view.parent_success)
    ripe = None if isinstance(view.timing.cadence, Spaced) else latest_ripe(view, until)
    if ripe is not None and view.next_due_at is not None:
        last, following = ripe
        entries.append(skip(view.next_due_at, last, reason))
        view = structs.replace(view, next_due_at=following)
    return view, entries


def leave_parent(view: ManifestView, *, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Decide the successes of a parent before a dependent leaves it; the latest stays owed."""
    latest = view.parent_success
    if latest is None or not _has_new_success(view):
        return view, []
    left = structs.replace(view, seen_success=latest)
    dropped = _drop_reason(view)
    if dropped is not None:
        return left, [_successes(view, latest, now, dropped)]
    owed = Entry(
        cause=identity.success_cause(_parent(view), latest, latest),
        first_due_at=now,
        last_due_at=now,
        decision="owed",
        reason=_owed_reason(view),
    )
    return left, [*_collapsed(view, latest, now), owed]


def skip_excluded(view: ManifestView, *, until: datetime) -> tuple[ManifestView, list[Entry]]:
    """Skip the excluded times of a manifest before its state changes.

    The new state must not become the reason of earlier times.
    """
    wakes_at = wake_at(view)
    ripe = None if isinstance(view.timing.cadence, Spaced) else latest_ripe(view, until)
    if view.next_due_at is None or ripe is None or (wakes_at is not None and wakes_at <= until):
        return view, []
    last, following = ripe
    entry = skip(view.next_due_at, last, skip_reason(view, view.next_due_at, last))
    return structs.replace(view, next_due_at=following), [entry]


def judge(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide all that is due, release owed work, and return the next wake-up."""
    if view.hold is not None:
        return _judge_held(view, view.hold, now)
    view, releases = _release(_space(view, now))
    view, successes = _follow_parent(view, now)
    view, entries, cancel = judge_due(view, now)
    return Verdict(
        manifest=view.id,
        entries=(*successes, *entries),
        releases=releases,
        cancel_running=cancel,
        next_due_at=view.next_due_at,
        wake_at=_earlier(wake_at(view), view.next_owed_at),
        seen_success=view.seen_success,
    )


def queue_owed(view: ManifestView, *, now: datetime) -> Verdict:
    """Release owed work that has room; decide nothing else."""
    if view.hold is not None and view.hold not in _PASSABLE:
        return reschedule_wake(view, now=now)
    view, releases = _release(view, explicit_only=view.hold is not None)
    return structs.replace(reschedule_wake(view, now=now), releases=releases)


def reschedule_wake(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide nothing; return when the manifest is due next and its next wake-up."""
    if view.hold is None:
        view = _space(view, now)
    return Verdict(
        manifest=view.id,
        next_due_at=view.next_due_at,
        wake_at=now if _is_ready(view) else _earlier(wake_at(view), view.next_owed_at),
        seen_success=view.seen_success,
    )


def _is_ready(view: ManifestView) -> bool:
    """Return whether owed work could be released now."""
    if not has_room(view):
        return False
    if view.hold is None:
        return bool(view.owed) or _has_new_success(view)
    return view.hold in _PASSABLE and any(owed.explicit for owed in view.owed)


def after_empty_fire(view: ManifestView, *, now: datetime) -> ManifestView:
    """Return the next state of a spaced manifest whose fire made no work."""
    cadence = view.timing.cadence
    if not isinstance(cadence, Spaced) or view.next_due_at is not None or view.slots:
        return view
    later = now + timedelta(seconds=cadence.seconds)
    return structs.replace(view, next_due_at=timing.first_open(view.timing, later))


def wake_at(view: ManifestView) -> datetime | None:
    """Return the next wake-up of a manifest; `None` during a pause."""
    if view.next_due_at is None or pause(view) is not None:
        return None
    if isinstance(view.timing.cadence, Spaced):
        return fire_at(view, view.next_due_at) if has_room(view) else None
    due_at: datetime | None = view.next_due_at
    if timing.excluded_by(view.timing, view.next_due_at) is not None:
        due_at = timing.next_allowed(view.timing, view.next_due_at)
    return None if due_at is None else fire_at(view, due_at)


def _judge_held(view: ManifestView, hold: Hold, now: datetime) -> Verdict:
    """Release explicit requests of a disabled manifest; nothing of a blocked one.

    Due times in a window wait for its end.
    """
    entries: list[Entry] = []
    if hold != PAUSED:
        view, entries = skip_missed_during_pause(view, hold, until=now)
    releases: tuple[Release, ...] = ()
    if hold in _PASSABLE:
        view, releases = _release(view, explicit_only=True)
    return Verdict(
        manifest=view.id,
        entries=tuple(entries),
        releases=releases,
        next_due_at=view.next_due_at,
        wake_at=view.next_owed_at,
        seen_success=view.seen_success,
    )


def _space(view: ManifestView, now: datetime) -> ManifestView:
    """Set the due time of a spaced manifest: its spacing after the last settled work.

    A new one is due at once; while work is outstanding it has no due time.
    """
    cadence = view.timing.cadence
    if not isinstance(cadence, Spaced):
        return view
    if view.slots:
        return structs.replace(view, next_due_at=None)
    due_at, earliest = view.next_due_at, None
    if view.settled_at is not None:
        earliest = view.settled_at + timedelta(seconds=cadence.seconds)
    stands = due_at is not None and (earliest is None or due_at >= earliest)
    if stands and not _missed_its_opening(view, now):
        return view
    # Never in the past, where another timing may have been in force.
    opens_at = timing.first_open(view.timing, max(now, earliest or now))
    return structs.replace(view, next_due_at=opens_at)


def _missed_its_opening(view: ManifestView, now: datetime) -> bool:
    """Return whether a spaced manifest missed its time and may not begin now.

    Within the misfire threshold it begins all the same.
    """
    if view.next_due_at is None:
        return False
    late = now - fire_at(view, view.next_due_at)
    if late.total_seconds() <= view.misfire.threshold_seconds:
        return False
    return timing.first_open(view.timing, now) != now


def _release(
    view: ManifestView, *, explicit_only: bool = False
) -> tuple[ManifestView, tuple[Release, ...]]:
    releases = []
    for owed in view.owed:
        if not has_room(view):
            break
        if explicit_only and not owed.explicit:
            continue
        view, slot = take_slot(view)
        view = structs.replace(view, owed=tuple(other for other in view.owed if other is not owed))
        releases.append(Release(cause=owed.cause, slot=slot))
    return view, tuple(releases)


def _follow_parent(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Fire for the parent's latest success, if there is room."""
    latest = view.parent_success
    if latest is None or not _has_new_success(view) or view.owed or not has_room(view):
        return view, []
    entries = list(_collapsed(view, latest, now))
    view, slot = take_slot(view)
    entries.append(
        Entry(
            cause=identity.success_cause(_parent(view), latest, latest),
            first_due_at=now,
            last_due_at=now,
            decision="queued",
            slot=slot,
        )
    )
    return structs.replace(view, seen_success=latest), entries


def _collapsed(view: ManifestView, latest: int, now: datetime) -> Iterator[Entry]:
    """Yield the entry of the successes before the latest."""
    if latest - view.seen_success > 1:
        yield _successes(view, latest - 1, now, COLLAPSED)


def _successes(view: ManifestView, last: int, now: datetime, reason: str) -> Entry:
    return Entry(
        cause=identity.success_cause(_parent(view), view.seen_success + 1, last),
        first_due_at=now,
        last_due_at=now,
        decision="skipped",
        reason=reason,
    )


def owes_success(view: ManifestView) -> bool:
    """Return whether a run for the parent's latest success is pending."""
    return _has_new_success(view) and _drop_reason(view) is None


def _drop_reason(view: ManifestView) -> str | None:
    """Return why no run follows a success, or `None`."""
    if view.hold == JOB_RETIRED:
        return JOB_RETIRED
    return MANIFEST_DISABLED if view.hold == MANIFEST_DISABLED or view.also_disabled else None


def _owed_reason(view: ManifestView) -> str:
    if view.hold == GROUP_DISABLED:
        return GROUP_DISABLED
    return AWAITS_ROOM if has_room(view) else STILL_OUTSTANDING


def _has_new_success(view: ManifestView) -> bool:
    """Return whether its parent has an undecided success."""
    return view.parent_success is not None and view.parent_success > view.seen_success


def _parent(view: ManifestView) -> UUID:
    assert view.parent is not None  # noqa: S101 - only a dependent has successes to follow
    return view.parent


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    return min((time for time in (first, second) if time is not None), default=None)
