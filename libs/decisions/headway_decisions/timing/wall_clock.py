"""Convert fires on the naive wall clock to instants, over gaps and repeated hours.

Times in a gap (spring) fire once, at the first instant after the gap. Times in a repeated hour
(autumn) fire in the first passing only, unless the cadence fires in every hour: then in both.
Offsets and fires are whole seconds.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headway_decisions.timing.times import SECOND

# No zone has ever left an offset and returned to it within this time.
_PROBE = timedelta(hours=6)
# No clock was ever put back by more, not even when the date line moved.
_LONGEST_REPEAT = timedelta(hours=25)
# Most cadences had a fire recently, so a search backwards begins here and widens.
_LOOK_BACK = timedelta(minutes=2)
# Names that differ from machine to machine.
_NO_ZONES = ("localtime", "posixrules", "posix/", "right/")

NextWall = Callable[[datetime], datetime | None]


class Transition(NamedTuple):
    """An instant at which the clock of a zone is put forward or back."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def old_wall(self) -> datetime:
        """The wall-clock time without the change."""
        return (self.at + self.before).replace(tzinfo=None)

    @property
    def new_wall(self) -> datetime:
        """The wall-clock time after the change."""
        return (self.at + self.after).replace(tzinfo=None)


@lru_cache(maxsize=1024)
def zone_named(name: str) -> ZoneInfo:
    """Return the zone of a name, or raise `ValueError`."""
    try:
        if name.startswith(_NO_ZONES):
            raise ZoneInfoNotFoundError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"time zone {name!r} is not known: use a name such as 'Europe/Berlin'"
        ) from error


def wall_at(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the wall-clock time of a zone at an instant."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def next_after(
    next_wall: NextWall, zone: ZoneInfo, after: datetime, *, repeats: bool
) -> datetime | None:
    """Return the first fire after an instant, in UTC; `repeats`: also in a repeated hour."""
    instant, inclusive = after.astimezone(UTC), False
    while True:
        offset = _offset(zone, instant)
        wall = (instant + offset).replace(tzinfo=None)
        fire = next_wall(wall - SECOND if inclusive else wall)
        # The clock may still go back to before the end of the cadence.
        arrival = (fire - offset).replace(tzinfo=UTC) if fire else instant + _LONGEST_REPEAT
        transition = next_transition(zone, instant, arrival)
        if transition is not None:
            if fire is not None and fire < transition.new_wall:
                return transition.at
            # The wall clock repeats this time; only some cadences fire in it again.
            repeated = max(timedelta(0), transition.before - transition.after)
            instant = transition.at + (timedelta(0) if repeats else repeated)
            inclusive = True
        elif fire is None:
            return None
        elif repeats or arrival.astimezone(zone).fold == 0:
            return arrival
        else:
            instant, inclusive = arrival, False


def latest(following: NextWall, after: datetime, until: datetime) -> datetime | None:
    """Return the last time in (after, until], by bisection; `following` returns the next time."""
    empty_from, window = until, _LOOK_BACK
    while True:
        start = until - min(window, until - after)
        found = _up_to(until, following(start))
        if found is not None or start <= after:
            break
        empty_from, window = start, window * 30
    while found is not None:
        later = _up_to(until, following(found))
        if later is None:
            break
        middle = later + (empty_from - later) / 2
        found, later = later, _up_to(until, following(middle))
        found, empty_from = (found, middle) if later is None else (later, empty_from)
    return found


def next_transition(zone: ZoneInfo, start: datetime, end: datetime) -> Transition | None:
    """Return the first transition in (start, end], or `None`."""
    for year in range(start.year, end.year + 1):
        for transition in transitions(zone, year):
            if start < transition.at <= end:
                return transition
    return None


@lru_cache(maxsize=8192)
def transitions(zone: ZoneInfo, year: int) -> tuple[Transition, ...]:
    """Return the transitions of a zone in a UTC year, without its start and with its end."""
    found = []
    low, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    while low < end:
        high = min(low + _PROBE, end)
        following, before = high, _offset(zone, low)
        if before != _offset(zone, high):
            # Narrow (low, high] down to the second in which the offset changes.
            while high - low > SECOND:
                middle = low + timedelta(seconds=(high - low) // SECOND // 2)
                low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
            found.append(Transition(high, before, _offset(zone, high)))
        low = following
    return tuple(found)


def _up_to(until: datetime, instant: datetime | None) -> datetime | None:
    return None if instant is None or instant > until else instant


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - a ZoneInfo always has one
    return offset
