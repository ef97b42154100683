"""Days that are alike are looked through once, and come to what a walk comes to."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import Cron, Daily, Every, Monthly, Weekly
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.timing.days import Days, day_of, starts_at
from headway_decisions.timing.times import DAY
from headway_decisions.timing.timing import Timing
from headway_decisions.timing.wall_clock import zone_named
from hypothesis import given, settings
from hypothesis import strategies as st

ZONES = (
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "America/St_Johns",
    "America/Havana",
)
# Around jumps of these clocks: Apia leaves a day out, St John's goes back over midnight.
STARTS = (
    datetime(2026, 10, 20, 5, 17, tzinfo=UTC),
    datetime(2027, 3, 26, tzinfo=UTC),
    datetime(2027, 4, 1, 23, 59, 59, tzinfo=UTC),
    datetime(2011, 12, 27, 12, tzinfo=UTC),
    datetime(2018, 11, 1, tzinfo=UTC),
    datetime(2010, 11, 5, tzinfo=UTC),
    datetime(2006, 10, 27, tzinfo=UTC),
)
CADENCES = st.sampled_from(
    [
        Every(900),
        Every(5000),
        Every(7200),
        Daily("00:30"),
        Daily("02:30", 2),
        Weekly(("mon", "sat"), "23:30"),
        Monthly((1, "last"), "00:00"),
        Cron("*/20 * * * *"),
        Cron("15 2,3 * * 1-5"),
        Cron("0 */6 13 * 5"),
    ]
)
FILTERS = st.builds(
    Filters,
    days=st.sampled_from([(), ("mon", "sun"), ("fri",)]),
    months=st.sampled_from([(), (3, 11)]),
    weeks=st.sampled_from([(), ("first", "last")]),
    between=st.sampled_from([None, "22:00-02:30", "01:00-13:00"]),
    start=st.sampled_from([None, "2018-11-03 12:00", "2027-03-28"]),
    end=st.sampled_from([None, "2027-03-30", "2027-04-04 02:10"]),
)
EXCLUSIONS = st.lists(
    st.sampled_from(
        [
            ExcludedDays(("sun",)),
            ExcludedDates((datetime(2027, 3, 29).date(), datetime(2018, 11, 4).date())),
            ExcludedRange(datetime(2026, 10, 24).date(), datetime(2026, 10, 26).date()),
            ExcludedTimes("23:15-01:15"),
        ]
    ),
    max_size=2,
).map(tuple)
TIMINGS = st.builds(
    Timing,
    cadence=CADENCES,
    zone=st.sampled_from(ZONES),
    filters=FILTERS,
    exclusions=EXCLUSIONS,
)


def walked(kept: Timing, start: datetime, end: datetime) -> list[int]:
    found, at = [], timings.next_allowed(kept, start - timedelta(microseconds=1))
    while at is not None and at < end:
        found.append(int(at.timestamp()))
        at = timings.next_allowed(kept, at)
    return found


@settings(max_examples=150)
@given(TIMINGS, st.sampled_from(ZONES), st.sampled_from(STARTS))
def test_stretches_of_any_zone_have_the_times_of_a_walk(kept, other, start):
    days, zone = Days(), zone_named(other)
    first = day_of(zone, int(start.timestamp()))
    found = []
    for number in range(14):
        begins, ends = (starts_at(zone, first + step * DAY) for step in (number, number + 1))
        if ends > begins:
            found += [begins + second for second in days.stretch(kept, begins, ends).seconds]
    begins, ends = (starts_at(zone, first + step * DAY) for step in (0, 14))
    assert found == walked(
        kept, datetime.fromtimestamp(begins, UTC), datetime.fromtimestamp(ends, UTC)
    )


@settings(max_examples=100)
@given(TIMINGS, st.sampled_from(STARTS), st.integers(0, 300_000), st.integers(0, 900_000))
def test_times_are_counted_as_a_walk_counts_them(kept, start, after, length):
    begin = int(start.timestamp()) + after
    walk = walked(
        kept,
        datetime.fromtimestamp(begin + 1, UTC),
        datetime.fromtimestamp(begin + length + 1, UTC),
    )
    assert Days().count(kept, begin, begin + length) == len(walk)


@pytest.mark.parametrize("name", ZONES)
def test_days_follow_each_other_without_gap_or_overlap(name):
    zone = zone_named(name)
    for start in STARTS:
        day = day_of(zone, int(start.timestamp()))
        for _ in range(10):
            begins, ends = starts_at(zone, day), starts_at(zone, day + DAY)
            assert begins <= ends
            for second in {begins, (begins + ends) // 2, ends - 1} if ends > begins else ():
                assert day_of(zone, second) == day
            day += DAY


def test_ten_years_of_minutes_take_few_steps():
    days, start = Days(), int(datetime(2027, 1, 1, tzinfo=UTC).timestamp())
    assert (
        days.count(Timing(cadence=Every(60)), start - 1, start + 3650 * 86_400 - 1) == 3650 * 1440
    )
    assert days.steps < 10_000
