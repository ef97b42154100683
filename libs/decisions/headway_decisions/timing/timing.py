"""Timing: a cadence in a zone, narrowed by filters, with exclusions cut out.

A *due* time follows from the cadence and its filters; each one gets a decision in the ledger. An
*allowed* time is a due time that no exclusion covers. Filters check the time of the cadence, and
exclusions that of the fire, which differ after a gap. Searches end after ten years.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from zoneinfo import ZoneInfo

from msgspec import Struct, structs

from headway_decisions import wording
from headway_decisions.timing import cadence as kinds
from headway_decisions.timing import calendar, times, timing_problems, wall_clock
from headway_decisions.timing.calendar import SEARCH, Exclusion, Filters

_A_LEAP_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
_ANY_OFFSET = timedelta(days=2)
_NO_FILTERS = Filters()
_INSTANT = timedelta(microseconds=1)


class Timing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a manifest fires."""

    cadence: kinds.Cadence
    zone: str = "UTC"
    filters: Filters = _NO_FILTERS
    exclusions: tuple[Exclusion, ...] = ()


def problems(timing: Timing, *, since: datetime | None = None) -> list[str]:
    """Return every problem of a timing; it must fire within ten years from `since`."""
    found = timing_problems.about_parts(timing)
    if isinstance(timing.cadence, kinds.Manual) and timing.filters != _NO_FILTERS:
        found.append("a manual cadence takes no filters: leave them out")
    return found or _never_fires(timing, since)


def problems_of_parts(timing: Timing) -> list[str]:
    """Return the problems of the parts that are present, if others could not be parsed."""
    found = timing_problems.about_parts(timing)
    return [line for line in found if timing_problems.IS_EMPTY not in line]


def next_due(timing: Timing, after: datetime) -> datetime | None:
    """Return the first due time after an instant; `None` for `Spaced` and `Manual`."""
    # In UTC, because both passings of a repeated hour are equal as cache keys.
    return _next_due(timing, after.astimezone(UTC))


# Manifests that are due together often share a timing.
@lru_cache(maxsize=4096)
def _next_due(timing: Timing, after: datetime) -> datetime | None:
    cadence, zone = timing.cadence, wall_clock.zone_named(timing.zone)
    if isinstance(cadence, kinds.Spaced | kinds.Manual):
        return None
    following = partial(kinds.next_wall, cadence)
    if timing.filters != _NO_FILTERS:
        following = partial(calendar.next_filtered, cadence, timing.filters)
    repeats = kinds.fires_in_repeated_hour(cadence)
    return wall_clock.next_after(following, zone, after, repeats=repeats)


def latest_due(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """Return the last due time in (after, until], or `None`."""
    return wall_clock.latest(lambda instant: next_due(timing, instant), after, until)


def next_allowed(timing: Timing, after: datetime) -> datetime | None:
    """Return the first allowed time after an instant, or `None`."""
    due = next_due(timing, after)
    if due is None or not timing.exclusions:
        return due
    zone, horizon = wall_clock.zone_named(timing.zone), due + SEARCH
    while due is not None and due <= horizon:
        wall = wall_clock.wall_at(zone, due)
        reopening = calendar.reopening(timing.exclusions, wall)
        if reopening == wall:
            return due
        if reopening is None:
            return None
        due = next_due(timing, _forward(zone, due, reopening - wall) - _INSTANT)
    return None


def latest_allowed(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """Return the last allowed time in (after, until], or `None`."""
    return wall_clock.latest(lambda instant: next_allowed(timing, instant), after, until)


def excluded_by(timing: Timing, at: datetime) -> str | None:
    """Describe the exclusion that covers an instant; `None` if none does."""
    wall = wall_clock.wall_at(wall_clock.zone_named(timing.zone), at)
    exclusion = calendar.covering(timing.exclusions, wall)
    return None if exclusion is None else str(exclusion)


def first_open(timing: Timing, at: datetime) -> datetime | None:
    """Return the first instant from `at` on that filters and exclusions allow (for `Spaced`)."""
    zone, instant = wall_clock.zone_named(timing.zone), at.astimezone(UTC)
    horizon = calendar.horizon(timing.filters, wall_clock.wall_at(zone, instant))
    while (wall := wall_clock.wall_at(zone, instant)) <= horizon:
        opening = calendar.opening(timing.filters, wall)
        if opening is not None:
            opening = calendar.reopening(timing.exclusions, opening)
        if opening is None:
            return None
        if opening == wall:
            return instant
        instant = _forward(zone, instant, opening - wall)
    return None


def clock_change(timing: Timing, at: datetime) -> str | None:
    """Return `gap` or `repeated` if the clock changes on the local day of an instant."""
    zone = wall_clock.zone_named(timing.zone)
    today = wall_clock.wall_at(zone, at).date()
    for year in range(today.year - 1, today.year + 2):
        for transition in wall_clock.transitions(zone, year):
            old, new = transition.old_wall, transition.new_wall
            if old < new and old.date() <= today <= new.date():
                return "gap"
            # The old time itself is not repeated: it comes once, after the repetition.
            if new < old and new.date() <= today <= (old - times.SECOND).date():
                return "repeated"
    return None


def local(timing: Timing, at: datetime) -> str:
    """Format an instant on the zone's wall clock, with its offset."""
    return at.astimezone(wall_clock.zone_named(timing.zone)).isoformat(sep=" ", timespec="seconds")


def describe(timing: Timing) -> str:
    """Describe a timing."""
    filters, parts = timing.filters, [str(timing.cadence)]
    if filters.days:
        parts.append(f"on {wording.weekdays(filters.days)}")
    if filters.weeks:
        parts.append(f"in the {wording.listed(filters.weeks)} week of the month")
    if filters.months:
        parts.append(f"in {wording.months(filters.months)}")
    bounds = (("between", filters.between), ("from", filters.start), ("until", filters.end))
    parts += [f"{word} {bound}" for word, bound in bounds if bound is not None]
    parts += [f"not {exclusion}" for exclusion in timing.exclusions]
    return f"{', '.join(parts)} ({timing.zone})"


def _forward(zone: ZoneInfo, instant: datetime, distance: timedelta) -> datetime:
    """Move forward on the wall clock, at most to the next transition."""
    arrival = instant + distance
    transition = wall_clock.next_transition(zone, instant, arrival)
    return arrival if transition is None else transition.at


# A batch has thousands of equal timings.
@lru_cache(maxsize=1024)
def _never_fires(timing: Timing, since: datetime | None) -> list[str]:
    """Return the problem of a valid timing that never fires."""
    start = _search_start(timing, since)
    match timing.cadence:
        case kinds.Manual():
            return []
        case kinds.Spaced():
            unrestricted = structs.replace(timing, exclusions=())
            allowed, due = first_open(timing, start), first_open(unrestricted, start)
        case _:
            allowed, due = next_allowed(timing, start), next_due(timing, start)
    if allowed is not None:
        return []
    reason = "filters allow none of its times" if due is None else "exclusions cover all its times"
    return [f"{timing.cadence} never fires: its {reason} within ten years: loosen them"]


def _search_start(timing: Timing, since: datetime | None) -> datetime:
    """Return a time before all fires of a timing, even of one that is over, or `since`."""
    if isinstance(timing.cadence, kinds.Once):
        return times.moment(timing.cadence.at).replace(tzinfo=UTC) - _ANY_OFFSET
    if timing.filters.start is not None:
        start = times.moment(timing.filters.start).replace(tzinfo=UTC) - _ANY_OFFSET
        return start if since is None or timing.filters.end is not None else max(start, since)
    if timing.filters.end is not None:
        return times.moment(timing.filters.end).replace(tzinfo=UTC) - SEARCH
    return since or _A_LEAP_YEAR
