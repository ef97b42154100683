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
from typing import Literal
from uuid import UUID

from msgspec import Struct, structs

from headway_decisions import identity, jitter, timing
from headway_decisions.cadence import Spaced
from headway_decisions.policies import Misfire, Overlap
from headway_decisions.timing import Timing

# Why a manifest does not fire, however due it is.
Hold = Literal["group_disabled", "manifest_disabled", "paused", "blocked_by_dead_letter"]
DISABLED = ("group_disabled", "manifest_disabled")
PAUSED = "paused"
# What somebody asks for by name passes these.
_PASSABLE = (*DISABLED, PAUSED)

MISSED = "missed"
RETIMED = "retimed"
EXCLUDED = "excluded"
STILL_OUTSTANDING = "still_outstanding"
ONE_ALREADY_WAITS = "one_already_waits"
AWAITS_ROOM = "awaits_room"
COLLAPSED = "collapsed_into_a_later_success"

_INSTANT = timedelta(microseconds=1)


class Owed(Struct, frozen=True, kw_only=True):
    """A decision that waits for room. An explicit one was asked for by somebody."""

    cause: str
    explicit: bool = False


class Window(Struct, frozen=True, kw_only=True):
    """When a manifest was paused, until when (none while it still is), and what for."""

    since: datetime
    until: datetime | None = None
    reason: str = ""


class ManifestView(Struct, frozen=True, kw_only=True):
    """What the decision needs to know of a manifest.

    `slots` are those that work under way takes up. `owed` is what waits for nothing but room;
    the first of what waits for its time is due at `next_owed_at`. `settled_at` is when work of
    it was last settled. `parent_success` is the number of its parent's latest success, for a
    dependent that is not dormant; `seen_success` the one that was decided about last. `window` is
    the last one in which it was paused.
    """

    id: UUID
    timing: Timing
    next_due_at: datetime | None = None
    jitter_seconds: float = 0.0
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    hold: Hold | None = None
    slots: tuple[int, ...] = ()
    owed: tuple[Owed, ...] = ()
    next_owed_at: datetime | None = None
    settled_at: datetime | None = None
    parent: UUID | None = None
    parent_success: int | None = None
    seen_success: int = 0
    window: Window | None = None


class Entry(Struct, frozen=True, kw_only=True):
    """One row of the ledger. `slot` is where queued work runs."""

    cause: str
    first_due_at: datetime
    last_due_at: datetime
    decision: Literal["queued", "owed", "skipped"]
    reason: str | None = None
    slot: int = 0


class Release(Struct, frozen=True, kw_only=True):
    """An owed decision for which there is room now."""

    cause: str
    slot: int


class Verdict(Struct, frozen=True, kw_only=True):
    """What the ledger is told, and how the manifest goes on."""

    manifest: UUID
    entries: tuple[Entry, ...] = ()
    releases: tuple[Release, ...] = ()
    cancel_running: bool = False
    next_due_at: datetime | None = None
    wake_at: datetime | None = None
    seen_success: int = 0


def pause(view: ManifestView) -> str | None:
    """Why nothing is decided about this manifest for now, if that is so."""
    if view.hold is not None:
        return view.hold
    if _has_room(view):
        return None
    if view.overlap.policy in ("queue_one", "cancel_running"):
        return ONE_ALREADY_WAITS if view.owed else None
    return STILL_OUTSTANDING


def account(
    view: ManifestView, reason: str, *, until: datetime
) -> tuple[ManifestView, list[Entry]]:
    """Skip all that was ripe by the end of a pause; returns how the manifest stands after it.

    A parent's success passes a dependent by only while that is disabled; otherwise it is owed.
    """
    entries = []
    if reason == PAUSED:
        reason = _in_window(view)
    if reason in DISABLED and _has_news(view):
        assert view.parent_success is not None  # noqa: S101 - there is no news without a parent
        entries.append(_successes(view, view.parent_success, until, reason))
        view = structs.replace(view, seen_success=view.parent_success)
    ripe = None if isinstance(view.timing.cadence, Spaced) else _latest_ripe(view, until)
    if ripe is not None and view.next_due_at is not None:
        last, following = ripe
        entries.append(_skip(view.next_due_at, last, reason))
        view = structs.replace(view, next_due_at=following)
    return view, entries


def leave_parent(view: ManifestView, *, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Decide the successes of a parent that a dependent is about to lose; the latest stays owed."""
    latest = view.parent_success
    if latest is None or not _has_news(view):
        return view, []
    left = structs.replace(view, seen_success=latest)
    if view.hold in DISABLED:
        return left, [_successes(view, latest, now, view.hold)]
    owed = Entry(
        cause=identity.success_cause(_parent(view), latest, latest),
        first_due_at=now,
        last_due_at=now,
        decision="owed",
        reason=AWAITS_ROOM if _has_room(view) else STILL_OUTSTANDING,
    )
    return left, [*_collapsed(view, latest, now), owed]


def account_excluded(view: ManifestView, *, until: datetime) -> tuple[ManifestView, list[Entry]]:
    """Skip what is behind a manifest that sleeps through an exclusion, before its state changes.

    What follows from the new state is no reason for times that came before it.
    """
    wakes_at = wake_at(view)
    ripe = None if isinstance(view.timing.cadence, Spaced) else _latest_ripe(view, until)
    if view.next_due_at is None or ripe is None or (wakes_at is not None and wakes_at <= until):
        return view, []
    last, following = ripe
    entry = _skip(view.next_due_at, last, _why_not(view, view.next_due_at, last))
    return structs.replace(view, next_due_at=following), [entry]


def judge(view: ManifestView, *, now: datetime) -> Verdict:
    """Decide all that is ripe, let go what is owed, and say when to look again."""
    if view.hold is not None:
        return _judge_held(view, view.hold, now)
    view, releases = _release(_space(view, now))
    view, successes = _follow_parent(view, now)
    view, entries, cancel = _judge_due(view, now)
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
    waits = view.hold is None and _has_room(view) and (bool(view.owed) or _has_news(view))
    return Verdict(
        manifest=view.id,
        next_due_at=view.next_due_at,
        wake_at=now if waits else _earlier(wake_at(view), view.next_owed_at),
        seen_success=view.seen_success,
    )


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
        return _fire_at(view, view.next_due_at) if _has_room(view) else None
    due_at: datetime | None = view.next_due_at
    if timing.excluded_by(view.timing, view.next_due_at) is not None:
        due_at = timing.next_allowed(view.timing, view.next_due_at)
    return None if due_at is None else _fire_at(view, due_at)


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
    late = now - _fire_at(view, view.next_due_at)
    if late.total_seconds() <= view.misfire.threshold_seconds:
        return False
    return timing.first_open(view.timing, now) != now


def _release(
    view: ManifestView, *, explicit_only: bool = False
) -> tuple[ManifestView, tuple[Release, ...]]:
    releases = []
    for owed in view.owed:
        if not _has_room(view):
            break
        if explicit_only and not owed.explicit:
            continue
        view, slot = _take_slot(view)
        view = structs.replace(view, owed=tuple(one for one in view.owed if one is not owed))
        releases.append(Release(cause=owed.cause, slot=slot))
    return view, tuple(releases)


def _follow_parent(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry]]:
    """Fire for the parent's latest success; without room it stays owed, by its number."""
    latest = view.parent_success
    if latest is None or not _has_news(view) or view.owed or not _has_room(view):
        return view, []
    entries = list(_collapsed(view, latest, now))
    view, slot = _take_slot(view)
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


def _judge_due(view: ManifestView, now: datetime) -> tuple[ManifestView, list[Entry], bool]:
    """Decide the due times up to now: which fire, and what the others are skipped for."""
    first, ripe = view.next_due_at, _latest_ripe(view, now)
    if first is None or ripe is None:
        return view, [], False
    last, following = ripe
    fires = _choose(view, first, last, now)
    entries = list(_skips(view, first, last, fires))
    caught_up = view.misfire.policy == "catch_up" and len(fires) > 1
    # Those that are caught up with follow each other: they take the place of what came before them.
    replaces = view.overlap.policy == "cancel_running" and bool(view.slots)
    cancel = False
    for due_at in fires:
        view, entry = _fire(view, due_at, must=caught_up)
        entries.append(entry)
        cancel = cancel or (replaces and entry.decision == "owed")
    view = structs.replace(view, next_due_at=following)
    entries.sort(key=lambda entry: entry.first_due_at)
    return view, entries, cancel


def _choose(view: ManifestView, first: datetime, last: datetime, now: datetime) -> list[datetime]:
    """The due times that fire, by the misfire policy, oldest first."""
    if isinstance(view.timing.cadence, Spaced):
        return [first]  # it waits for its last work, not for the clock, so it is never missed
    latest = _latest_allowed(view, first, last)
    if latest is None:
        return []
    misfire = view.misfire
    late = now - _fire_at(view, latest)
    if misfire.policy == "skip" and late.total_seconds() > misfire.threshold_seconds:
        return []
    fires = [latest]
    while misfire.policy == "catch_up" and len(fires) < misfire.limit:
        earlier = _latest_allowed(view, first, fires[0] - _INSTANT)
        if earlier is None:
            break
        fires.insert(0, earlier)
    return fires


def _fire(view: ManifestView, due_at: datetime, *, must: bool) -> tuple[ManifestView, Entry]:
    """Queue one due time, or do with it what the overlap policy says."""
    decision: Literal["queued", "owed", "skipped"] = "queued"
    reason, slot = None, 0
    if _has_room(view) and not view.owed:
        view, slot = _take_slot(view)
    elif must or (view.overlap.policy in ("queue_one", "cancel_running") and not view.owed):
        decision, reason = "owed", STILL_OUTSTANDING
        view = structs.replace(view, owed=(*view.owed, Owed(cause=identity.due_cause(due_at))))
    else:
        decision, reason = "skipped", ONE_ALREADY_WAITS if view.owed else STILL_OUTSTANDING
    return view, Entry(
        cause=identity.due_cause(due_at),
        first_due_at=due_at,
        last_due_at=due_at,
        decision=decision,
        reason=reason,
        slot=slot,
    )


def _skips(
    view: ManifestView, first: datetime, last: datetime, fires: list[datetime]
) -> Iterator[Entry]:
    """The stretches before, between and after the due times that fire."""
    start: datetime | None = first
    if fires == [first] and first == last:
        return
    for fire in [*fires, None]:
        before = last if fire is None else fire - _INSTANT
        if start is not None and start <= before:
            end = timing.latest_due(view.timing, start, before) or start
            yield _skip(start, end, _why_not(view, start, end))
        if fire is not None:
            start = timing.next_due(view.timing, fire)


def _why_not(view: ManifestView, first: datetime, last: datetime) -> str:
    if _latest_allowed(view, first, last) is not None:
        return _in_window(view) if _was_paused(view, first, last) else MISSED
    return f"{EXCLUDED}: {timing.excluded_by(view.timing, first)}"


def _was_paused(view: ManifestView, first: datetime, last: datetime) -> bool:
    """Whether a stretch of due times lies in a window, or reaches into it."""
    window = view.window
    if window is None or last < window.since:
        return False
    return window.until is None or first <= window.until


def _in_window(view: ManifestView) -> str:
    """The reason of what was skipped because of a window, with what that was for."""
    reason = "" if view.window is None else view.window.reason
    return f"{PAUSED}: {reason}" if reason else PAUSED


def _latest_ripe(view: ManifestView, until: datetime) -> tuple[datetime, datetime | None] | None:
    """The last undecided due time that was let go by then, and the one that follows it.

    Jitter may hold a due time back, and with it all that come after.
    """
    first = view.next_due_at
    if first is None or _fire_at(view, first) > until:
        return None
    following = timing.next_due(view.timing, first)
    if following is None or following > until:
        return first, following
    latest = timing.latest_due(view.timing, first, until) or first
    while _fire_at(view, latest) > until:
        latest = timing.latest_due(view.timing, first, latest - _INSTANT) or first
    return latest, timing.next_due(view.timing, latest)


def _fire_at(view: ManifestView, due_at: datetime) -> datetime:
    return jitter.fire_at(view.timing, view.id, due_at, view.jitter_seconds)


def _latest_allowed(view: ManifestView, first: datetime, last: datetime) -> datetime | None:
    """The last due time from first to last that no exclusion covers."""
    if last < first:
        return None
    if not view.timing.exclusions and last == first:
        return first
    latest = timing.latest_allowed(view.timing, first, last)
    if latest is None and timing.excluded_by(view.timing, first) is None:
        return first
    return latest


def _skip(first: datetime, last: datetime, reason: str) -> Entry:
    return Entry(
        cause=identity.stretch_cause(first, last),
        first_due_at=first,
        last_due_at=last,
        decision="skipped",
        reason=reason,
    )


def _has_news(view: ManifestView) -> bool:
    """Whether its parent has had a success that nothing was decided about."""
    return view.parent_success is not None and view.parent_success > view.seen_success


def _parent(view: ManifestView) -> UUID:
    assert view.parent is not None  # noqa: S101 - only a dependent has successes to follow
    return view.parent


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((time for time in (one, other) if time is not None), default=None)


def _has_room(view: ManifestView) -> bool:
    return len(view.slots) < view.overlap.slots


def _take_slot(view: ManifestView) -> tuple[ManifestView, int]:
    slot = next(number for number in range(len(view.slots) + 1) if number not in view.slots)
    return structs.replace(view, slots=(*view.slots, slot)), slot
