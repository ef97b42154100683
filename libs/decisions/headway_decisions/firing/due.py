"""What is decided about one manifest whose time has come, or whose state has changed.

A manifest remembers its first undecided due time. Everything between that and now gets a
decision: fired, owed (it fires as soon as there is room), or skipped with the reason; skips
that follow each other are decided together, as one stretch.

While a manifest is *paused* (disabled, blocked, or its work leaves no room) nothing is
decided, so a pause costs nothing however long it lasts. Whoever ends a pause first calls
`account`, which skips all that came due meanwhile, with the pause as the reason; then
`judge` decides the rest in the new state.

One hold is different: a *window*, in which an operator wants nothing to begin. What comes due in it
is not skipped for good. When it ends it is judged as if nobody had been there to decide it: the
misfire policy says what is made good, and the rest is skipped with the window as its reason.
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
    in_window,
    judge_due,
    latest_ripe,
    skip,
    why_not,
)
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Spaced

# What somebody asks for by name passes these.
_PASSABLE = (GROUP_DISABLED, MANIFEST_DISABLED, PAUSED)


def pause(view: ManifestView) -> str | None:
    """Why nothing is decided about this manifest for now, if that is so."""
    if view.hold is not None:
        return view.hold
    if has_room(view):
        return None
    if view.overlap.policy in ("queue_one", "cancel_running"):
        return ONE_ALREADY_WAITS if view.owed else None
    return STILL_OUTSTANDING


def account(
    view: ManifestView, reason: str, *, until: datetime
) -> tuple[ManifestView, list[Entry]]:
    """Skip all that was ripe by the end of a pause; returns how the manifest stands after it.

    A parent's success is dropped only while the dependent itself is disabled or its job retired;
    a disabled group, like a block or a run under way, leaves it owed.
    """
    entries = []
    if reason == PAUSED:
        reason = in_window(view)
    dropped = _why_dropped(view)
    if dropped is not None and _has_news(view):
        assert view.parent_success is not None  # noqa: S101 - there is no news without a parent
        entries.append(_successes(view, view.parent_success, until, dropped))
        view = structs.replace(view, seen_success=view.parent_success)
    ripe = None if isinstance(view.timing.cadence, Spaced) else latest_ripe(view, until)
    if ripe is not None and view.next_due_at is not None:
        last, following = ripe
        entries.append(skip(view.next_due_at, last, reason))
        view = structs.replace(view, next_due_at=following)
    return view, entries


def leave_parent(view: ManifestView, *, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Decide the successes of a parent that a dependent is about to lose; the latest stays owed."""
    latest = view.parent_success
    if latest is None or not _has_news(view):
        return view, []
    left = structs.replace(view, seen_success=latest)
    dropped = _why_dropped(view)
    if dropped is not None:
        return left, [_successes(view, latest, now, dropped)]
    owed = Entry(
        cause=identity.success_cause(_parent(view), latest, latest),
        first_due_at=now,
        last_due_at=now,
        decision="owed",
        reason=_why_owed(view),
    )
    return left, [*_collapsed(view, latest, now), owed]


def account_excluded(view: ManifestView, *, until: datetime) -> tuple[ManifestView, list[Entry]]:
    """Skip what is behind a manifest that sleeps through an exclusion, before its state changes.

    What follows from the new state is no reason for times that came before it.
    """
    wakes_at = wake_at(view)
    ripe = None if isinstance(view.timing.cadence, Spaced) else latest_ripe(view, until)
    if view.next_due_at is None or ripe is None or (wakes_at is not None and wakes_at <= until):
        return view, []
    last, following = ripe
    entry = skip(view.next_due_at, last, why_not(view, view.next_due_at, last))
    return structs.replace(view, next_due_at=following), [entry]


def judge(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide all that is ripe, let go what is owed, and say when to look again."""
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


def release(view: ManifestView, *, now: datetime) -> Verdict:
    """Only let go what is owed and finds room; all else is left for the next judgement."""
    if view.hold is not None and view.hold not in _PASSABLE:
        return rest(view, now=now)
    view, releases = _release(view, explicit_only=view.hold is not None)
    return structs.replace(rest(view, now=now), releases=releases)


def rest(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide nothing; only say when a manifest is due next, and when to look at it."""
    if view.hold is None:
        view = _space(view, now)
    return Verdict(
        manifest=view.id,
        next_due_at=view.next_due_at,
        wake_at=now if _is_ready(view) else _earlier(wake_at(view), view.next_owed_at),
        seen_success=view.seen_success,
    )


def _is_ready(view: ManifestView) -> bool:
    """Whether something waits that only the tick has to let go, by what a hold lets pass."""
    if not has_room(view):
        return False
    if view.hold is None:
        return bool(view.owed) or _has_news(view)
    return view.hold in _PASSABLE and any(one.explicit for one in view.owed)


def go_on(view: ManifestView, *, now: datetime) -> ManifestView:
    """A fire came to nothing: no work will end, from which a spaced manifest could count."""
    cadence = view.timing.cadence
    if not isinstance(cadence, Spaced) or view.next_due_at is not None or view.slots:
        return view
    later = now + timedelta(seconds=cadence.seconds)
    return structs.replace(view, next_due_at=timing.first_open(view.timing, later))


def wake_at(view: ManifestView) -> datetime | None:
    """When the tick has to look at a manifest: never during a pause."""
    if view.next_due_at is None or pause(view) is not None:
        return None
    if isinstance(view.timing.cadence, Spaced):
        return fire_at(view, view.next_due_at) if has_room(view) else None
    due_at: datetime | None = view.next_due_at
    if timing.excluded_by(view.timing, view.next_due_at) is not None:
        due_at = timing.next_allowed(view.timing, view.next_due_at)
    return None if due_at is None else fire_at(view, due_at)


def _judge_held(view: ManifestView, hold: Hold, now: datetime) -> Verdict:
    """Only what somebody asked for passes a disabled manifest; nothing passes a blocked one.

    What comes due in a window waits for its end.
    """
    entries: list[Entry] = []
    if hold != PAUSED:
        view, entries = account(view, hold, until=now)
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
    """A spaced manifest is due so long after its last work was settled; a new one at once.

    While any work is under way it has no due time at all.
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
    if stands and not _is_shut_out(view, now):
        return view
    # Never in the past, which belongs to the timing that was in force then.
    opens_at = timing.first_open(view.timing, max(now, earliest or now))
    return structs.replace(view, next_due_at=opens_at)


def _is_shut_out(view: ManifestView, now: datetime) -> bool:
    """Whether a spaced manifest let its time pass, in a pause or an outage, and may not begin now.

    What is just a moment late begins all the same.
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
        view = structs.replace(view, owed=tuple(one for one in view.owed if one is not owed))
        releases.append(Release(cause=owed.cause, slot=slot))
    return view, tuple(releases)


def _follow_parent(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Fire for the parent's latest success; without room it stays owed, by its number."""
    latest = view.parent_success
    if latest is None or not _has_news(view) or view.owed or not has_room(view):
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
    """The successes before the latest, for which that one stands."""
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
    """Whether a run for the latest success of its parent is still to come."""
    return _has_news(view) and _why_dropped(view) is None


def _why_dropped(view: ManifestView) -> str | None:
    """Why no run follows a success: the dependent itself is disabled, or its job is retired."""
    if view.hold == JOB_RETIRED:
        return JOB_RETIRED
    return MANIFEST_DISABLED if view.hold == MANIFEST_DISABLED or view.also_disabled else None


def _why_owed(view: ManifestView) -> str:
    if view.hold == GROUP_DISABLED:
        return GROUP_DISABLED
    return AWAITS_ROOM if has_room(view) else STILL_OUTSTANDING


def _has_news(view: ManifestView) -> bool:
    """Whether its parent has had a success that nothing was decided about."""
    return view.parent_success is not None and view.parent_success > view.seen_success


def _parent(view: ManifestView) -> UUID:
    assert view.parent is not None  # noqa: S101 - only a dependent has successes to follow
    return view.parent


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time is not None), default=None)
