"""Filters and exclusions on the naive wall clock."""

from datetime import date, datetime, timedelta
from functools import cache

import pytest
from headway_decisions.timing.cadence import Cron, Daily, Every, Monthly, Once
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
    covering,
    next_filtered,
    reopening,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def at(text):
    return datetime.fromisoformat(text)


def walk(cadence, filters, wall, count):
    found, wall = [], at(wall)
    while len(found) < count and (wall := next_filtered(cadence, filters, wall)) is not None:
        found.append(wall)
    return [f"{fire:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for fire in found]


@pytest.mark.parametrize(
    ("cadence", "filters", "wall", "expected"),
    [
        pytest.param(
            Every(1),
            Filters(months=(1,)),
            "2027-02-01 00:00",
            ["2028-01-01 00:00", "2028-01-01 00:00:01"],
            id="the-seconds-of-a-month-far-away",
        ),
        pytest.param(
            Every(3600),
            Filters(days=("sat", "mon")),
            "2027-05-01 22:30",
            ["2027-05-01 23:00", "2027-05-03 00:00", "2027-05-03 01:00"],
            id="weekdays",
        ),
        pytest.param(
            Daily("09:00"),
            Filters(weeks=("first", "last")),
            "2027-02-06 12:00",
            ["2027-02-07 09:00", "2027-02-22 09:00", "2027-02-23 09:00"],
            id="weeks-of-the-month",
        ),
        pytest.param(
            Daily("09:00"),
            Filters(weeks=("last",), days=("fri",)),
            "2027-04-30 09:00",
            ["2027-05-28 09:00", "2027-06-25 09:00", "2027-07-30 09:00"],
            id="the-last-friday-which-may-be-the-fifth",
        ),
        pytest.param(
            Daily("09:00"),
            Filters(weeks=("fourth",), days=("fri",)),
            "2027-06-30 09:00",
            ["2027-07-23 09:00", "2027-08-27 09:00"],
            id="the-fourth-friday-is-not-the-fifth",
        ),
        pytest.param(
            Every(1800),
            Filters(between="8:00-09:00"),
            "2027-05-01 07:00",
            ["2027-05-01 08:00", "2027-05-01 08:30", "2027-05-02 08:00"],
            id="a-window-without-its-end",
        ),
        pytest.param(
            Every(3600),
            Filters(between="22:00-02:00"),
            "2027-05-01 00:30",
            ["2027-05-01 01:00", "2027-05-01 22:00", "2027-05-01 23:00", "2027-05-02 00:00"],
            id="a-window-over-midnight",
        ),
        pytest.param(
            Every(3600),
            Filters(between="22:00-02:00", days=("sat",)),
            "2027-05-01 00:30",
            ["2027-05-01 01:00", "2027-05-01 22:00", "2027-05-01 23:00", "2027-05-08 00:00"],
            id="each-filter-looks-at-the-fire-s-own-date",
        ),
        pytest.param(
            Every(3600),
            Filters(between="08:00-10:00", days=("mon",)),
            "2027-05-03 09:00",
            ["2027-05-10 08:00", "2027-05-10 09:00", "2027-05-17 08:00"],
            id="a-window-on-a-day",
        ),
        pytest.param(
            Every(3600),
            Filters(between="23:00-00:00"),
            "2027-05-03 09:00",
            ["2027-05-03 23:00", "2027-05-04 23:00"],
            id="a-window-up-to-midnight",
        ),
        pytest.param(
            Daily("09:00"),
            Filters(start="2027-05-03", end="2027-05-04"),
            "2020-01-01 00:00",
            ["2027-05-03 09:00", "2027-05-04 09:00"],
            id="dates-as-bounds-include-their-whole-days",
        ),
        pytest.param(
            Every(3600),
            Filters(start="2027-05-03 09:00", end="2027-05-03 10:00"),
            "2020-01-01 00:00",
            ["2027-05-03 09:00", "2027-05-03 10:00"],
            id="times-as-bounds-are-included",
        ),
        pytest.param(
            Daily("00:00"),
            Filters(start="2050-05-03"),
            "2020-01-01 00:00",
            ["2050-05-03 00:00", "2050-05-04 00:00"],
            id="a-start-more-than-ten-years-ahead",
        ),
        pytest.param(
            Cron("0 0 29 2 *"),
            Filters(days=("tue",)),
            "2027-01-01 00:00",
            ["2028-02-29 00:00"],
            id="nothing-within-ten-years-ends-it",
        ),
        pytest.param(
            Monthly((31,), "9:00"),
            Filters(months=(4, 5)),
            "2027-01-01 00:00",
            ["2027-05-31 09:00", "2028-05-31 09:00"],
            id="on-a-day-and-in-a-month",
        ),
        pytest.param(
            Once("2027-05-03 09:00"), Filters(days=("tue",)), "2020-01-01 00:00", [], id="once-not"
        ),
        pytest.param(
            Once("2055-05-03 09:00"),
            Filters(days=("mon",)),
            "2020-01-01 00:00",
            ["2055-05-03 09:00"],
            id="once-in-a-far-year",
        ),
    ],
)
def test_filters(cadence, filters, wall, expected):
    # With one expected fire or none, check that nothing follows.
    count = len(expected) if len(expected) > 1 else 3
    assert walk(cadence, filters, wall, count) == expected


def test_the_end_ends_it():
    filters = Filters(end="2027-05-04")
    assert walk(Daily("09:00"), filters, "2027-05-03 00:00", 9) == [
        "2027-05-03 09:00",
        "2027-05-04 09:00",
    ]


SHUT = (
    ExcludedDays(("sat", "sun")),
    ExcludedDates((date(2027, 5, 3), date(2027, 5, 6))),
    ExcludedRange(date(2027, 12, 24), date(2027, 12, 31)),
    ExcludedTimes("23:00-01:00"),
)


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ("2027-04-30 12:00", None),
        ("2027-05-01 00:00", SHUT[0]),
        ("2027-05-02 23:59:59", SHUT[0]),
        ("2027-05-03 00:00", SHUT[1]),
        ("2027-05-04 00:59:59", SHUT[3]),
        ("2027-05-04 01:00", None),
        ("2027-05-04 22:59:59", None),
        ("2027-05-04 23:00", SHUT[3]),
        ("2027-12-23 12:00", None),
        ("2027-12-24 12:00", SHUT[2]),
        ("2027-12-31 22:59", SHUT[2]),
        ("2028-01-03 12:00", None),
    ],
)
def test_exclusions_that_cover_a_time(wall, expected):
    assert covering(SHUT, at(wall)) == expected


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ("2027-04-30 22:00", "2027-04-30 22:00"),
        # Skips Saturday, Sunday, an excluded Monday and the small hours of Tuesday.
        ("2027-04-30 23:30", "2027-05-04 01:00"),
        ("2027-12-24 05:00", "2028-01-03 01:00"),
    ],
)
def test_where_exclusions_are_over(wall, expected):
    assert reopening(SHUT, at(wall)) == at(expected)


@pytest.mark.parametrize(
    "exclusions",
    [
        (ExcludedRange(date(2027, 1, 1), date.max),),
        (ExcludedTimes("00:00-12:00"), ExcludedTimes("12:00-00:00")),
    ],
)
def test_exclusions_that_never_end(exclusions):
    assert reopening(exclusions, at("2027-05-01 00:00")) is None


walls = st.datetimes(datetime(2026, 1, 1), datetime(2029, 1, 1)).map(
    lambda wall: wall.replace(second=0, microsecond=0)
)
windows = st.sampled_from([None, "08:00-18:00", "22:00-02:00", "23:00-00:00", "00:00-00:30"])
some_filters = st.builds(
    Filters,
    days=st.sets(st.sampled_from(["mon", "wed", "sat", "sun"])).map(tuple),
    months=st.sets(st.integers(1, 12), max_size=3).map(tuple),
    weeks=st.sets(st.sampled_from(["first", "third", "fourth", "last"]), max_size=2).map(tuple),
    between=windows,
    start=st.sampled_from([None, "2027-02-03", "2027-10-31 02:30"]),
    end=st.sampled_from([None, "2028-06-30", "2028-03-26 02:30"]),
)


@cache
def weeks_by_counting(day):
    """Return the position of a date among the same weekdays of its month."""
    same_weekday = [
        other
        for other in (day.replace(day=1) + timedelta(days=n) for n in range(31))
        if other.month == day.month and other.weekday() == day.weekday()
    ]
    names = ["first", "second", "third", "fourth"]
    weeks = {name for name, other in zip(names, same_weekday, strict=False) if other == day}
    return weeks | ({"last"} if same_weekday[-1] == day else set())


def passes(filters, wall):
    """Apply the filters to a single time, independently of the implementation."""
    weekday = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[wall.weekday()]
    clock = f"{wall:%H:%M}"
    first, _, last = (filters.between or "00:00-24:00").partition("-")
    in_window = first <= clock < last if first < last else clock >= first or clock < last
    text = f"{wall:%Y-%m-%d %H:%M}"
    return (
        (not filters.days or weekday in filters.days)
        and (not filters.months or wall.month in filters.months)
        and (not filters.weeks or bool(weeks_by_counting(wall.date()) & set(filters.weeks)))
        and in_window
        and (filters.start or "") <= text
        and (filters.end is None or text[: len(filters.end)] <= filters.end)
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(some_filters, walls)
def test_filters_let_the_same_pass_as_a_walk_of_every_half_hour(filters, wall):
    expected = wall.replace(minute=wall.minute // 30 * 30) + timedelta(minutes=30)
    limit = wall + timedelta(days=45)
    while expected < limit and not passes(filters, expected):
        expected += timedelta(minutes=30)
    found = next_filtered(Every(1800), filters, wall)
    if expected < limit:
        assert found == expected
    else:
        assert found is None or (found >= limit and passes(filters, found))
