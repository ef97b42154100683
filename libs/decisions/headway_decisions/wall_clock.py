"""From the naive wall clock to instants, over gaps and repeated hours.

Cadences are computed on the wall clock of the manifest's zone. Within a stretch of
constant offset the wall clock and time itself run alike; only at a transition does
something have to be decided:

- A wall-clock time that the clock jumps over (spring) fires at the first instant after
  the gap, once, however many times of the cadence fall in.
- A wall-clock time that the clock passes twice (autumn) fires at its first passing only,
  unless the cadence fires in every hour anyway: then it fires in both.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from headway_decisions.cadence import Cadence

_PROBE = timedelta(days=1)
_RESOLUTION = timedelta(seconds=1)

# From narrow to wide: a cadence that fires often is found in the first, and only those
# that fire seldom are looked for in the last, so few steps are ever taken.
_LOOK_BACK = (
    timedelta(minutes=2),
    timedelta(hours=3),
    timedelta(days=3),
    timedelta(days=70),
    timedelta(days=366 * 10),
)


def next_after(cadence: Cadence, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first instant strictly after `after` at which the cadence fires, in UTC."""
    instant, inclusive = after.astimezone(UTC), False
    while True:
        offset = _offset(zone, instant)
        wall = (instant + offset).replace(tzinfo=None)
        candidate = cadence.next_wall(wall - _RESOLUTION if inclusive else wall)
        if candidate is None:
            return None
        arrival = (candidate - offset).replace(tzinfo=UTC)
        transition = _first_transition(zone, instant, arrival)
        if transition is None:
            if cadence.fires_in_repeated_hour or not _is_second_passing(zone, arrival):
                return arrival
            instant, inclusive = arrival, False
            continue
        gap_ends = (transition + _offset(zone, transition)).replace(tzinfo=None)
        if candidate < gap_ends:
            return transition
        instant, inclusive = transition, True


def latest_between(
    cadence: Cadence, zone: ZoneInfo, after: datetime, until: datetime
) -> datetime | None:
    """The last fire in (after, until], without walking through all of them."""
    for window in _LOOK_BACK:
        start = max(after, until - window)
        latest, found = None, next_after(cadence, zone, start)
        while found is not None and found <= until:
            latest, found = found, next_after(cadence, zone, found)
        if latest is not None or start == after:
            return latest
    return None


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - a ZoneInfo always has one
    return offset


def _is_second_passing(zone: ZoneInfo, instant: datetime) -> bool:
    return instant.astimezone(zone).fold == 1


def _first_transition(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first instant in (start, end] whose offset differs from that at `start`."""
    offset = _offset(zone, start)
    low = start
    while low < end:
        high = min(low + _PROBE, end)
        if _offset(zone, high) != offset:
            return _bisect(zone, low, high, offset)
        low = high
    return None


def _bisect(zone: ZoneInfo, low: datetime, high: datetime, offset: timedelta) -> datetime:
    """Narrow (low, high] down to the second in which the offset changes."""
    low = low.replace(microsecond=0)
    high = high.replace(microsecond=0) + (_RESOLUTION if high.microsecond else timedelta(0))
    while high - low > _RESOLUTION:
        middle = low + timedelta(seconds=(high - low) // _RESOLUTION // 2)
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high
