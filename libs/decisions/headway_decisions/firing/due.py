"""Decide about one manifest that is due, or whose state has changed.

Every due time from the first undecided one to now gets a decision: queued, owed (queued as soon as
there is room), or skipped with a reason. Consecutive skips are one ledger entry.

While a manifest is on hold nothing is decided, so a long hold costs nothing. When it ends,
`skip_missed_during_pause` skips all that came due meanwhile; then `judge` decides the rest. A pause
by an operator is different: its due times are decided when it ends, by the misfire policy, as if
the scheduler had been down.
"""

from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from headway_decisions.firing import identity, manifest_state, misfires
from headway_decisions.firing.manifest_state import (
    GROUP_DISABLED,
    JOB_RETIRED,
    MANIFEST_DISABLED,
    PAUSED,
    Entry,
    ManifestView,
    Owed,
    Release,
    Verdict,
    has_room,
    take_slot,
)
from headway_decisions.firing.misfires import fire_at
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
        return manifest_state.ONE_ALREADY_WAITS if view.owed else None
    return manifest_state.STILL_OUTSTANDING


def skip_missed_during_pause(
    view: ManifestView, reason: str, *, until: datetime
) -> tuple[ManifestView, list[Entry]]:
    """Skip all that came due during a pause; return the manifest's new state and the entries.

    A parent's success is dropped only if the dependent itself is disabled or its job retired. In a
    disabled group, or while the manifest is blocked or running, it stays owed.
    """
    entries = []
    dropped = _drop_reason(view)
    latest = _new_success(view)
    if dropped is not None and latest is not None:
        entries.append(_success_entry(view, latest, now=until, decision="skipped", reason=dropped))
        view = structs.replace(view, seen_success=latest)
    ripe = _ripe_on_clock(view, until)
    if ripe is not None:
        first, last, following = ripe
        if reason == PAUSED:
            reason = misfires.skip_reason(view, first, last)
        entries.append(misfires.skip(first, last, reason))
        view = structs.replace(view, next_due_at=following)
    return view, entries


def leave_parent(view: ManifestView, *, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Decide the successes of a parent before a dependent leaves it; the latest stays owed."""
    latest, dropped = _new_success(view), _drop_reason(view)
    if latest is None:
        return view, []
    if dropped is not None:
        entries = [_success_entry(view, latest, now=now, decision="skipped", reason=dropped)]
    else:
        reason = manifest_state.AWAITS_ROOM if has_room(view) else manifest_state.STILL_OUTSTANDING
        reason = GROUP_DISABLED if view.hold == GROUP_DISABLED else reason
        entries = _latest_success(view, latest, now, decision="owed", reason=reason)
    return structs.replace(view, seen_success=latest), entries


def skip_excluded(view: ManifestView, *, until: datetime) -> tuple[ManifestView, list[Entry]]:
    """Skip excluded times before a change of state, which must not become their reason."""
    wakes_at, ripe = wake_at(view), _ripe_on_clock(view, until)
    if ripe is None or (wakes_at is not None and wakes_at <= until):
        return view, []
    first, last, following = ripe
    entry = misfires.skip(first, last, misfires.skip_reason(view, first, last))
    return structs.replace(view, next_due_at=following), [entry]


def judge(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide all that is due, release owed work, and return the next wake-up.

    A held manifest releases explicit requests, and a blocked one nothing. Due times in the window
    of a pause wait for its end.
    """
    if view.hold is not None:
        entries: list[Entry] = []
        if view.hold != PAUSED:
            view, entries = skip_missed_during_pause(view, view.hold, until=now)
        view, releases = _release(view)
        return _verdict(view, view.next_owed_at, entries=tuple(entries), releases=releases)
    view, releases = _release(_space(view, now))
    view, successes = _follow_parent(view, now)
    view, entries, cancel = _judge_due(view, now)
    return _verdict(
        view,
        _earlier(wake_at(view), view.next_owed_at),
        entries=(*successes, *entries),
        releases=releases,
        cancel_running=cancel,
    )


def queue_owed(view: ManifestView, *, now: datetime) -> Verdict:
    """Release owed work that has room; decide nothing else."""
    view, releases = _release(view)
    return structs.replace(reschedule_wake(view, now=now), releases=releases)


def reschedule_wake(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide nothing; return when the manifest is due next and its next wake-up."""
    if view.hold is None:
        view = _space(view, now)
    follows = view.hold is None and has_room(view) and _new_success(view) is not None
    if follows or _release(view)[1]:
        return _verdict(view, now)
    return _verdict(view, _earlier(wake_at(view), view.next_owed_at))


def after_empty_fire(view: ManifestView, *, now: datetime) -> ManifestView:
    """Return the next state of a spaced manifest whose fire made no work."""
    cadence = view.timing.cadence
    if not isinstance(cadence, Spaced) or view.next_due_at is not None or view.slots:
        return view
    later = now + timedelta(seconds=cadence.seconds)
    return structs.replace(view, next_due_at=timing.first_open(view.timing, later))


def wake_at(view: ManifestView) -> datetime | None:
    """Return the next wake-up of a manifest; `None` during a pause."""
    due_at = view.next_due_at
    if due_at is None or pause(view) is not None:
        return None
    if isinstance(view.timing.cadence, Spaced):
        return fire_at(view, due_at) if has_room(view) else None
    if timing.excluded_by(view.timing, due_at) is not None:
        due_at = timing.next_allowed(view.timing, due_at)
    return None if due_at is None else fire_at(view, due_at)


def owes_success(view: ManifestView) -> bool:
    """Return whether a run for the parent's latest success is pending."""
    return _new_success(view) is not None and _drop_reason(view) is None


def _verdict(view: ManifestView, wakes_at: datetime | None, **decided: Any) -> Verdict:
    return Verdict(
        manifest=view.id,
        next_due_at=view.next_due_at,
        wake_at=wakes_at,
        seen_success=view.seen_success,
        **decided,
    )


def _ripe_on_clock(
    view: ManifestView, until: datetime
) -> tuple[datetime, datetime, datetime | None] | None:
    """Return the first and last ripe due time and the next one; `None` for a spaced manifest."""
    first, ripe = view.next_due_at, misfires.latest_ripe(view, until)
    if first is None or ripe is None or isinstance(view.timing.cadence, Spaced):
        return None
    return first, *ripe


def _space(view: ManifestView, now: datetime) -> ManifestView:
    """Set the due time of a spaced manifest: its spacing after the last work, or now if new."""
    cadence = view.timing.cadence
    if not isinstance(cadence, Spaced):
        return view
    if view.slots:
        return structs.replace(view, next_due_at=None)
    due_at, earliest = view.next_due_at, None
    if view.settled_at is not None:
        earliest = view.settled_at + timedelta(seconds=cadence.seconds)
    if due_at is not None and (earliest is None or due_at >= earliest):
        late = now - fire_at(view, due_at)
        # Within the misfire threshold it begins even where its window has closed.
        is_missed = late.total_seconds() > view.misfire.threshold_seconds
        if not is_missed or timing.first_open(view.timing, now) == now:
            return view
    # Never in the past, where another timing may have been in force.
    opens_at = timing.first_open(view.timing, max(now, earliest or now))
    return structs.replace(view, next_due_at=opens_at)


def _release(view: ManifestView) -> tuple[ManifestView, tuple[Release, ...]]:
    """Release owed work that has room: of a held manifest explicit requests, of a blocked none."""
    releases: list[Release] = []
    owed = [each for each in view.owed if view.hold is None or each.explicit]
    if view.hold is not None and view.hold not in _PASSABLE:
        owed = []
    for released in owed:
        if not has_room(view):
            break
        view, slot = take_slot(view)
        left = tuple(each for each in view.owed if each is not released)
        view = structs.replace(view, owed=left)
        releases.append(Release(cause=released.cause, slot=slot))
    return view, tuple(releases)


def _judge_due(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry], bool]:
    """Decide the due times up to now; return also whether to cancel running work."""
    first, ripe = view.next_due_at, misfires.latest_ripe(view, now)
    if first is None or ripe is None:
        return view, [], False
    last, following = ripe
    fires = misfires.choose(view, first, last, now)
    entries = list(misfires.skips(view, first, last, fires))
    caught_up = view.misfire.policy == "catch_up" and len(fires) > 1
    # Caught-up fires run one after the other, and replace the work before them.
    replaces = view.overlap.policy == "cancel_running" and bool(view.slots)
    cancel = False
    for due_at in fires:
        view, entry = _fire(view, due_at, must=caught_up)
        entries.append(entry)
        cancel = cancel or (replaces and entry.decision == "owed")
    view = structs.replace(view, next_due_at=following)
    entries.sort(key=lambda entry: entry.first_due_at)
    return view, entries, cancel


def _fire(view: ManifestView, due_at: datetime, *, must: bool) -> tuple[ManifestView, Entry]:
    """Queue one due time, or apply the overlap policy."""
    reason = manifest_state.ONE_ALREADY_WAITS if view.owed else manifest_state.STILL_OUTSTANDING
    entry = misfires.skip(due_at, due_at, reason)
    if has_room(view) and not view.owed:
        view, slot = take_slot(view)
        return view, structs.replace(entry, decision="queued", reason=None, slot=slot)
    if must or (view.overlap.policy in ("queue_one", "cancel_running") and not view.owed):
        view = structs.replace(view, owed=(*view.owed, Owed(cause=entry.cause)))
        reason = manifest_state.STILL_OUTSTANDING
        return view, structs.replace(entry, decision="owed", reason=reason)
    return view, entry


def _follow_parent(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Fire for the parent's latest success, if there is room."""
    latest = _new_success(view)
    if latest is None or view.owed or not has_room(view):
        return view, []
    followed, slot = take_slot(view)
    entries = _latest_success(view, latest, now, decision="queued", slot=slot)
    return structs.replace(followed, seen_success=latest), entries


def _latest_success(view: ManifestView, latest: int, now: datetime, **decision: Any) -> list[Entry]:
    """Return the entry of the latest success, after that of the collapsed ones before it."""
    entry = _success_entry(view, latest, first=latest, now=now, **decision)
    if latest - view.seen_success <= 1:
        return [entry]
    reason = manifest_state.COLLAPSED
    collapsed = _success_entry(view, latest - 1, now=now, decision="skipped", reason=reason)
    return [collapsed, entry]


def _success_entry(
    view: ManifestView, last: int, *, now: datetime, first: int | None = None, **decision: Any
) -> Entry:
    """Return the ledger entry of successes, by default of all undecided ones up to the last."""
    assert view.parent is not None  # noqa: S101 - only a dependent has successes to follow
    cause = identity.success_cause(view.parent, first or view.seen_success + 1, last)
    return Entry(cause=cause, first_due_at=now, last_due_at=now, **decision)


def _drop_reason(view: ManifestView) -> str | None:
    """Return why no run follows a success, or `None`."""
    if view.hold == JOB_RETIRED:
        return JOB_RETIRED
    return MANIFEST_DISABLED if view.hold == MANIFEST_DISABLED or view.also_disabled else None


def _new_success(view: ManifestView) -> int | None:
    """Return the number of the parent's latest success if it is undecided, or `None`."""
    latest = view.parent_success
    return latest if latest is not None and latest > view.seen_success else None


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    return min((time for time in (first, second) if time is not None), default=None)
