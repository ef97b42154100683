"""Timing: a cadence in a zone, narrowed by filters, with exclusions cut out.

A *due* time is one that the cadence and its filters name: every one of them gets a decision
in the ledger. An *allowed* time is a due time that no exclusion covers.

Filters judge the time that the cadence names, even if the clock jumps over it and it fires
right after the gap. Exclusions judge the time that the clock shows at the fire itself.
Searches give up after ten years.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_decisions import wording
from headway_decisions.timing import calendar, times, timing_problems, wall_clock
from headway_decisions.timing.cadence import Cadence, Manual, Once, Spaced, Ticking
from headway_decisions.timing.calendar import SEARCH, Exclusion, Filters

_A_LEAP_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
_ANY_OFFSET = timedelta(days=2)
_INSTANT = timedelta(microseconds=1)


class Timing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a manifest fires."""

    cadence: Cadence
    zone: str = "UTC"
    filters: Filters = Filters()
    exclusions: tuple[Exclusion, ...] = ()


class _Plan(NamedTuple):
    """A timing, read: `ticking` is none for those that know no wall clock."""

    zone: ZoneInfo
    ticking: Ticking | None
    passage: calendar.Passage


def problems(timing: Timing, *, since: datetime | None = None) -> list[str]:
    """Everything that is wrong with it, a line each.

    Whether it fires at all within ten years is asked from `since` on, the time at which it is
    declared; who knows no time asks from a fixed one.
    """
    found = _complaints(timing)
    if isinstance(timing.cadence, Manual) and timing.filters != Filters():
        found.append("a manual cadence takes no filters: leave them out")
    return found or _never_fires(timing, since)


def problems_of_parts(timing: Timing) -> list[str]:
    """What is wrong with those parts of it that are there, where some could not be read."""
    return [one for one in _complaints(timing) if timing_problems.IS_EMPTY not in one]


def _complaints(timing: Timing) -> list[str]:
    return [
        *timing_problems.about_cadence(timing.cadence),
        *timing_problems.about_zone(timing.zone),
        *timing_problems.about_filters(timing.filters),
        *timing_problems.about_exclusions(timing.exclusions),
    ]


def next_due(timing: Timing, after: datetime) -> datetime | None:
    """The first due time strictly after an instant; none for `Spaced` and `Manual`."""
    # In UTC, because the two passings of a repeated hour are equal as keys.
    return _next_due(timing, after.astimezone(UTC))


# Of thousands of manifests that fall due together most share a timing, too.
@lru_cache(maxsize=4096)
def _next_due(timing: Timing, after: datetime) -> datetime | None:
    plan = _plan(timing)
    if plan.ticking is None:
        return None
    return wall_clock.next_after(plan.ticking, plan.zone, after)


def latest_due(timing: Timing, after: datetime, until: datetime) -> datetime | None:
    """The last due time in (after, until], without walking through all of them."""
    return wall_clock.latest(lambda instant: next_due(timing, instant), after, until)


def next_allowed(timing: Timing, after: datetime) -> datetime | None:
    """The first due time strictly after an instant that no exclusion covers."""
    due = next_due(timing, after)
    if due is None or not timing.exclusions:
        return due
    zone, horizon = _plan(timing).zone, due + SEARCH
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
    """The last allowed time in (after, until]."""
    return wall_clock.latest(lambda instant: next_allowed(timing, instant), after, until)


def excluded_by(timing: Timing, at: datetime) -> str | None:
    """The exclusion that covers an instant, in words, if any does."""
    wall = wall_clock.wall_at(_plan(timing).zone, at)
    exclusion = calendar.covering(timing.exclusions, wall)
    return None if exclusion is None else str(exclusion)


def first_open(timing: Timing, at: datetime) -> datetime | None:
    """The first instant from `at` on that filters and exclusions let through (for `Spaced`)."""
    plan, instant = _plan(timing), at.astimezone(UTC)
    horizon = plan.passage.horizon(wall_clock.wall_at(plan.zone, instant))
    while (wall := wall_clock.wall_at(plan.zone, instant)) <= horizon:
        opening = plan.passage.opening(wall)
        if opening is not None:
            opening = calendar.reopening(timing.exclusions, opening)
        if opening is None:
            return None
        if opening == wall:
            return instant
        instant = _forward(plan.zone, instant, opening - wall)
    return None


def clock_change(timing: Timing, at: datetime) -> str | None:
    """`gap` or `repeated` if the zone's clock jumps on the local day of an instant."""
    zone = _plan(timing).zone
    today = wall_clock.wall_at(zone, at).date()
    for year in range(today.year - 1, today.year + 2):
        for transition in wall_clock.transitions(zone, year):
            old, new = transition.old_wall, transition.new_wall
            if old < new and old.date() <= today <= new.date():
                return "gap"
            # The old time itself is not repeated any more: it comes once, after the repetition.
            if new < old and new.date() <= today <= (old - times.SECOND).date():
                return "repeated"
    return None


def local(timing: Timing, at: datetime) -> str:
    """An instant on the zone's wall clock, with its offset."""
    return at.astimezone(_plan(timing).zone).isoformat(sep=" ", timespec="seconds")


def describe(timing: Timing) -> str:
    """The timing in words."""
    filters, parts = timing.filters, [str(timing.cadence)]
    if filters.days:
        parts.append(f"on {wording.weekdays(filters.days)}")
    if filters.weeks:
        parts.append(f"in the {wording.listed(filters.weeks)} week of the month")
    if filters.months:
        parts.append(f"in {wording.months(filters.months)}")
    if filters.between is not None:
        parts.append(f"between {filters.between}")
    if filters.start is not None:
        parts.append(f"from {filters.start}")
    if filters.end is not None:
        parts.append(f"until {filters.end}")
    parts += [f"not {exclusion}" for exclusion in timing.exclusions]
    return f"{', '.join(parts)} ({timing.zone})"


@lru_cache(maxsize=16_384)
def _plan(timing: Timing) -> _Plan:
    zone, passage = wall_clock.zone_named(timing.zone), calendar.passage(timing.filters)
    match timing.cadence:
        case Spaced() | Manual():
            return _Plan(zone, None, passage)
        case clocked if timing.filters == Filters():
            return _Plan(zone, clocked, passage)
        case clocked:
            return _Plan(zone, calendar.Filtered(clocked, passage), passage)


def _forward(zone: ZoneInfo, instant: datetime, distance: timedelta) -> datetime:
    """Go so far on the wall clock, but no further than it runs evenly."""
    arrival = instant + distance
    transition = wall_clock.next_transition(zone, instant, arrival)
    return arrival if transition is None else transition.at


def _never_fires(timing: Timing, since: datetime | None) -> list[str]:
    """Whether anything is left of the cadence; asked only of a timing that can be read."""
    start = _where_to_look_from(timing, since)
    match timing.cadence:
        case Manual():
            return []
        case Spaced():
            allowed, due = first_open(timing, start), first_open(_without_exclusions(timing), start)
        case _:
            allowed, due = next_allowed(timing, start), next_due(timing, start)
    if allowed is not None:
        return []
    # What it would be without exclusions tells whose doing it is.
    reason = (
        "filters let none of its times pass" if due is None else "exclusions cover all its times"
    )
    return [f"{timing.cadence} never fires: its {reason} within ten years: loosen them"]


def _without_exclusions(timing: Timing) -> Timing:
    return Timing(cadence=timing.cadence, zone=timing.zone, filters=timing.filters)


def _where_to_look_from(timing: Timing, since: datetime | None) -> datetime:
    """A time before everything that the timing could mean; if it names none, the given one.

    One that was meant to end may be over: that is no mistake, so its end is what counts.
    """
    if isinstance(timing.cadence, Once):
        return times.moment(timing.cadence.at).replace(tzinfo=UTC) - _ANY_OFFSET
    if timing.filters.start is not None:
        start = times.moment(timing.filters.start).replace(tzinfo=UTC) - _ANY_OFFSET
        return start if since is None or timing.filters.end is not None else max(start, since)
    if timing.filters.end is not None:
        return times.moment(timing.filters.end).replace(tzinfo=UTC) - SEARCH
    return since or _A_LEAP_YEAR
