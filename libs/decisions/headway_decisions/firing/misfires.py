"""Compute which due times fire or are backfilled, and why the others are skipped."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from headway_decisions.firing import identity, jitter, manifest_state
from headway_decisions.firing.manifest_state import Entry, ManifestView
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Spaced
from headway_decisions.timing.timing import Timing

MOST_BACKFILLED = 1000
_INSTANT = timedelta(microseconds=1)


def choose(view: ManifestView, first: datetime, last: datetime, now: datetime) -> list[datetime]:
    """Return the due times that fire, by the misfire policy, oldest first."""
    if isinstance(view.timing.cadence, Spaced):
        return [first]  # it waits for its last work, so it is never missed
    latest = _latest_allowed(view, first, last)
    if latest is None:
        return []
    misfire = view.misfire
    late = now - fire_at(view, latest)
    if misfire.policy == "skip" and late.total_seconds() > misfire.threshold_seconds:
        return []
    fires = [latest]
    while misfire.policy == "catch_up" and len(fires) < misfire.limit:
        earlier = _latest_allowed(view, first, fires[0] - _INSTANT)
        if earlier is None:
            break
        fires.insert(0, earlier)
    return fires


def skips(
    view: ManifestView, first: datetime, last: datetime, fires: list[datetime]
) -> Iterator[Entry]:
    """Yield the skipped stretches before, between and after the fires."""
    start: datetime | None = first
    if fires == [first] and first == last:
        return
    for fire in [*fires, None]:
        before = last if fire is None else fire - _INSTANT
        if start is not None and start <= before:
            end = timing.latest_due(view.timing, start, before) or start
            yield skip(start, end, skip_reason(view, start, end))
        if fire is not None:
            start = timing.next_due(view.timing, fire)


def skip_reason(view: ManifestView, first: datetime, last: datetime) -> str:
    """Return why the due times of a stretch do not fire."""
    if _latest_allowed(view, first, last) is None:
        return f"{manifest_state.EXCLUDED}: {timing.excluded_by(view.timing, first)}"
    over = [
        window
        for window in view.windows
        if window.since <= last and (window.ended_at is None or first <= window.ended_at)
    ]
    if not over:
        return manifest_state.MISSED
    reasons = "; ".join(dict.fromkeys(window.reason for window in over if window.reason))
    return f"{manifest_state.PAUSED}: {reasons}" if reasons else manifest_state.PAUSED


def latest_ripe(view: ManifestView, until: datetime) -> tuple[datetime, datetime | None] | None:
    """Return the last undecided due time that has fired by `until`, and the next one."""
    # A due time that its jitter delays also delays all later ones.
    first = view.next_due_at
    if first is None or fire_at(view, first) > until:
        return None
    following = timing.next_due(view.timing, first)
    if following is None or following > until:
        return first, following
    latest = timing.latest_due(view.timing, first, until) or first
    while fire_at(view, latest) > until:
        latest = timing.latest_due(view.timing, first, latest - _INSTANT) or first
    return latest, timing.next_due(view.timing, latest)


def fire_at(view: ManifestView, due_at: datetime) -> datetime:
    """Return when a due time fires, with its jitter."""
    return jitter.fire_at(view.timing, view.external_id, due_at, view.jitter_seconds)


def _latest_allowed(view: ManifestView, first: datetime, last: datetime) -> datetime | None:
    """Return the last allowed time in [first, last], or `None`."""
    if last < first:
        return None
    if not view.timing.exclusions and last == first:
        return first
    latest = timing.latest_allowed(view.timing, first, last)
    if latest is None and timing.excluded_by(view.timing, first) is None:
        return first
    return latest


def skip(first: datetime, last: datetime, reason: str) -> Entry:
    """Return the ledger entry of a stretch of skipped due times."""
    return Entry(
        cause=identity.stretch_cause(first, last),
        first_due_at=first,
        last_due_at=last,
        decision="skipped",
        reason=reason,
    )


def range_problem(kept: Timing, since: datetime, until: datetime, *, now: datetime) -> str | None:
    """Return why a range cannot be backfilled, with the remedy; `None` if it can."""
    if isinstance(kept.cadence, Manual | Spaced):
        return "it has no scheduled times: trigger it without a range"
    if until < since:
        return f"the range ends at {until.isoformat()}, before it begins: swap the two times"
    if until > now:
        return f"the range ends at {until.isoformat()}, in the future: end it now or earlier"
    return None


def range_occurrences(kept: Timing, since: datetime, until: datetime) -> list[datetime]:
    """Return the allowed times in [since, until], at most one more than may be backfilled."""
    found: list[datetime] = []
    due_at = timing.next_allowed(kept, since - _INSTANT)
    while due_at is not None and due_at <= until and len(found) <= MOST_BACKFILLED:
        found.append(due_at)
        due_at = timing.next_allowed(kept, due_at)
    return found
