"""From the naive wall clock to instants, over gaps and repeated hours.

Cadences are computed on the wall clock of the manifest's zone. Within a stretch of
constant offset the wall clock and time itself run alike; only at a transition does
something have to be decided:

- A wall-clock time that the clock jumps over (spring) fires at the first instant after
  the gap, once, however many times of the cadence fall in.
- A wall-clock time that the clock passes twice (autumn) fires at its first passing only,
  unless the cadence fires in every hour anyway: then it fires in both.

Offsets and fires are whole seconds, so instants between two seconds never matter.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway_decisions.timing.cadence import Ticking
from headway_decisions.timing.times import SECOND

# No zone has ever left an offset and come back to it within so short a time.
_PROBE = timedelta(hours=6)
# The clock was never put back by more, not even where the date line moved.
_LONGEST_REPEAT = timedelta(hours=25)
# From narrow to wide: most cadences that are asked for their latest fire had one just now.
_LOOK_BACK = (
    timedelta(minutes=2),
    timedelta(hours=3),
    timedelta(days=3),
    timedelta(days=70),
    timedelta(days=366 * 10),
)
# Names that a machine may know, but that mean something else on the next one.
_NO_ZONES = ("localtime", "posixrules", "posix/", "right/")


class Transition(NamedTuple):
    """An instant at which the clock of a zone is put forward or back."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def old_wall(self) -> datetime:
        """What the clock would have shown."""
        return (self.at + self.before).replace(tzinfo=None)

    @property
    def new_wall(self) -> datetime:
        """What it shows instead."""
        return (self.at + self.after).replace(tzinfo=None)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """The zone of a name; ValueError if there is none."""
    try:
        if name.startswith(_NO_ZONES):
            raise ZoneInfoNotFoundError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"time zone {name!r} is not known: use a name such as 'Europe/Berlin'"
        ) from error


def wall_at(zone: ZoneInfo, instant: datetime) -> datetime:
    """What the zone's clock shows at an instant."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def next_after(cadence: Ticking, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first instant strictly after `after` at which the cadence fires, in UTC."""
    instant, inclusive = after.astimezone(UTC), False
    while True:
        offset = _offset(zone, instant)
        wall = (instant + offset).replace(tzinfo=None)
        fire = cadence.next_wall(wall - SECOND if inclusive else wall)
        # Where the cadence is at its end, the clock may yet go back to before that.
        arrival = (fire - offset).replace(tzinfo=UTC) if fire else instant + _LONGEST_REPEAT
        transition = next_transition(zone, instant, arrival)
        if transition is not None:
            if fire is not None and fire < transition.new_wall:
                return transition.at
            instant, inclusive = _resumption(cadence, transition), True
        elif fire is None:
            return None
        elif cadence.fires_in_repeated_hour or not _is_second_passing(zone, arrival):
            return arrival
        else:
            instant, inclusive = arrival, False


def latest_between(
    cadence: Ticking, zone: ZoneInfo, after: datetime, until: datetime
) -> datetime | None:
    """The last fire in (after, until], without walking through all of them."""
    return latest(lambda instant: next_after(cadence, zone, instant), after, until)


def latest(
    following: Callable[[datetime], datetime | None], after: datetime, until: datetime
) -> datetime | None:
    """The last in (after, until] of the times that `following` finds one by one.

    Whether anything still follows an instant is true before the last time and false from it
    on, so the last one can be closed in on: each probe halves what is left.
    """
    found, empty_from = None, until
    for window in _LOOK_BACK:
        start = max(after, until - window)
        found = _up_to(until, following(start))
        if found is not None or start == after:
            break
        empty_from = start
    else:
        found = _up_to(until, following(after))
    while found is not None:
        later = _up_to(until, following(found))
        if later is None:
            break
        middle = later + (empty_from - later) / 2
        found, later = later, _up_to(until, following(middle))
        found, empty_from = (found, middle) if later is None else (later, empty_from)
    return found


def next_transition(zone: ZoneInfo, start: datetime, end: datetime) -> Transition | None:
    """The first transition in (start, end]."""
    for year in range(start.year, end.year + 1):
        for transition in transitions(zone, year):
            if start < transition.at <= end:
                return transition
    return None


@lru_cache(maxsize=8192)
def transitions(zone: ZoneInfo, year: int) -> tuple[Transition, ...]:
    """The transitions of a zone in a year of UTC, its beginning not included but its end."""
    found = []
    low, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while low < end:
        high = min(low + _PROBE, end)
        if _offset(zone, low) != _offset(zone, high):
            found.append(_bisect(zone, low, high))
        low = high
    return tuple(found)


def _up_to(until: datetime, instant: datetime | None) -> datetime | None:
    return None if instant is None or instant > until else instant


def _resumption(cadence: Ticking, transition: Transition) -> datetime:
    """Where to go on after a transition: a repeated hour is passed over if it does not count."""
    repeated = transition.before - transition.after
    if cadence.fires_in_repeated_hour or repeated < timedelta(0):
        return transition.at
    return transition.at + repeated


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - a ZoneInfo always has one
    return offset


def _is_second_passing(zone: ZoneInfo, instant: datetime) -> bool:
    return instant.astimezone(zone).fold == 1


def _bisect(zone: ZoneInfo, low: datetime, high: datetime) -> Transition:
    """Narrow (low, high] down to the second in which the offset changes."""
    before = _offset(zone, low)
    while high - low > SECOND:
        middle = low + timedelta(seconds=(high - low) // SECOND // 2)
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return Transition(high, before, _offset(zone, high))
