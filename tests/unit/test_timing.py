"""Timings: due and allowed times in zones."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import (
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyDow,
    Once,
    Spaced,
    Weekly,
)
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.timing.timing import Timing
from hypothesis import given, settings
from hypothesis import strategies as st
from support.timings import BERLIN, CADENCES, EXCLUSIONS, FILTERS, at


def walk(timing, after, until, following=timings.next_due):
    """Return the fires in (after, until] as local times with their offset."""
    found, moment = [], at(after)
    while (moment := following(timing, moment)) is not None and moment <= at(until):
        found.append(moment.astimezone(ZoneInfo(timing.zone)).isoformat())
    return found


@pytest.mark.parametrize(
    ("timing", "after", "until", "expected"),
    [
        pytest.param(
            Timing(cadence=Every(900), zone=BERLIN, filters=Filters(between="02:15-02:45")),
            "2027-03-27T12:00+01:00",
            "2027-03-29T12:00+02:00",
            [
                "2027-03-28T03:00:00+02:00",
                "2027-03-29T02:15:00+02:00",
                "2027-03-29T02:30:00+02:00",
            ],
            id="filters-judge-the-nominal-time-in-a-gap",
        ),
        pytest.param(
            Timing(cadence=Every(1800), zone=BERLIN, filters=Filters(between="02:00-03:00")),
            "2027-10-30T12:00+02:00",
            "2027-10-31T12:00+01:00",
            [
                "2027-10-31T02:00:00+02:00",
                "2027-10-31T02:30:00+02:00",
                "2027-10-31T02:00:00+01:00",
                "2027-10-31T02:30:00+01:00",
            ],
            id="a-filtered-grid-ticks-in-both-passings",
        ),
        pytest.param(
            # When it would be three, the clock goes back to two.
            Timing(cadence=Every(1800), zone=BERLIN, filters=Filters(between="03:00-04:00")),
            "2027-10-30T12:00+02:00",
            "2027-10-31T12:00+01:00",
            ["2027-10-31T03:00:00+01:00", "2027-10-31T03:30:00+01:00"],
            id="the-end-of-a-repeated-hour-comes-once",
        ),
        pytest.param(
            Timing(cadence=Monthly(("last",), "02:30"), zone=BERLIN),
            "2027-10-01T00:00+02:00",
            "2027-11-30T12:00+01:00",
            ["2027-10-31T02:30:00+02:00", "2027-11-30T02:30:00+01:00"],
            id="a-day-of-the-month-fires-at-the-first-passing",
        ),
        pytest.param(
            Timing(cadence=Weekly(("sun",), "02:30"), zone="America/New_York"),
            "2027-03-08T00:00-05:00",
            "2027-03-22T00:00-04:00",
            ["2027-03-14T03:00:00-04:00", "2027-03-21T02:30:00-04:00"],
            id="new-york-s-gap",
        ),
        pytest.param(
            Timing(cadence=MonthlyDow(("first",), ("sun",), "01:45"), zone="Australia/Lord_Howe"),
            "2027-04-01T00:00+11:00",
            "2027-05-01T00:00+10:30",
            ["2027-04-04T01:45:00+11:00"],
            id="lord-howe-repeats-half-an-hour",
        ),
        pytest.param(
            Timing(cadence=Daily("00:00"), zone="America/Sao_Paulo"),
            "2018-11-03T12:00-03:00",
            "2018-11-05T12:00-02:00",
            ["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"],
            id="sao-paulo-s-midnight-in-the-gap",
        ),
        pytest.param(
            Timing(cadence=Once("2011-12-30 09:00"), zone="Pacific/Apia"),
            "2011-12-01T00:00-10:00",
            "2012-02-01T00:00+14:00",
            ["2011-12-31T00:00:00+14:00"],
            id="once-on-apia-s-missing-day",
        ),
        pytest.param(
            Timing(cadence=Every(6 * 3600), zone="Pacific/Apia"),
            "2011-12-29T13:00-10:00",
            "2011-12-31T12:00+14:00",
            [
                "2011-12-29T18:00:00-10:00",
                "2011-12-31T00:00:00+14:00",
                "2011-12-31T06:00:00+14:00",
                "2011-12-31T12:00:00+14:00",
            ],
            id="apia-s-missing-day",
        ),
        pytest.param(
            Timing(cadence=Daily("00:05"), zone="Asia/Kathmandu"),
            "1985-12-31T12:00+05:30",
            "1986-01-02T12:00+05:45",
            ["1986-01-01T00:15:00+05:45", "1986-01-02T00:05:00+05:45"],
            id="kathmandu-s-quarter-of-an-hour",
        ),
        pytest.param(
            Timing(cadence=Daily("02:30"), zone="Africa/Casablanca"),
            "2027-02-06T12:00+01:00",
            "2027-02-08T12:00+00:00",
            ["2027-02-07T02:30:00+01:00", "2027-02-08T02:30:00+00:00"],
            id="casablanca-s-ramadan",
        ),
        pytest.param(
            # Daylight saving is negative here, and in winter.
            Timing(cadence=Daily("01:30"), zone="Europe/Dublin"),
            "2027-10-30T12:00+01:00",
            "2027-11-01T12:00+00:00",
            ["2027-10-31T01:30:00+01:00", "2027-11-01T01:30:00+00:00"],
            id="dublin-s-negative-daylight-saving",
        ),
    ],
)
def test_due_times_over_clock_changes(timing, after, until, expected):
    assert walk(timing, after, until) == expected


def test_exclusions_apply_to_the_wall_clock_at_the_fire():
    # The time 02:30 is in the gap and fires at 03:00, which is not excluded.
    timing = Timing(cadence=Daily("02:30"), zone=BERLIN, exclusions=(ExcludedTimes("02:00-03:00"),))
    assert walk(
        timing, "2027-03-26T12:00+01:00", "2027-04-05T12:00+02:00", timings.next_allowed
    ) == ["2027-03-28T03:00:00+02:00"]


def test_exclusions_are_looked_at_again_when_the_clock_goes_back():
    timing = Timing(cadence=Every(1800), zone=BERLIN, exclusions=(ExcludedTimes("02:30-03:30"),))
    assert walk(
        timing, "2027-10-31T01:45+02:00", "2027-10-31T04:00+01:00", timings.next_allowed
    ) == [
        "2027-10-31T02:00:00+02:00",
        "2027-10-31T02:00:00+01:00",
        "2027-10-31T03:30:00+01:00",
        "2027-10-31T04:00:00+01:00",
    ]


@pytest.mark.parametrize("cadence", [Spaced(60), Manual()])
def test_cadences_without_a_wall_clock_are_never_due(cadence):
    timing = Timing(cadence=cadence)
    now = at("2027-05-01T00:00+00:00")
    assert timings.next_due(timing, now) is None
    assert timings.next_allowed(timing, now) is None
    assert timings.latest_due(timing, now - timedelta(days=9999), now) is None


def test_the_seconds_of_one_month_are_found_from_far_away():
    timing = Timing(cadence=Every(1), zone=BERLIN, filters=Filters(months=(1,)))
    now = at("2027-11-05T12:00+01:00")
    latest = timings.latest_due(timing, at("2000-01-01T00:00+01:00"), now)
    assert latest == at("2027-01-31T23:59:59+01:00")
    assert timings.next_due(timing, now) == at("2028-01-01T00:00:00+01:00")


def test_the_seconds_before_an_excluded_year():
    year = ExcludedRange(date(2026, 1, 1), date(2026, 12, 31))
    timing = Timing(cadence=Every(1), zone=BERLIN, exclusions=(year,))
    inside = at("2026-11-05T12:00+01:00")
    assert timings.next_allowed(timing, inside) == at("2027-01-01T00:00:00+01:00")
    found = timings.latest_allowed(timing, at("2000-01-01T00:00+01:00"), inside)
    assert found == at("2025-12-31T23:59:59+01:00")


ZONES = [
    "UTC",
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "Europe/Dublin",
    "America/St_Johns",
]


some_timings = st.builds(
    Timing,
    cadence=st.sampled_from(CADENCES),
    zone=st.sampled_from(ZONES),
    filters=st.sampled_from(FILTERS),
    exclusions=st.sampled_from(EXCLUSIONS),
)


# Mostly around clock changes, where errors are likely.
changes = st.sampled_from(
    [
        "2027-03-28T01:00+00:00",
        "2027-10-31T01:00+00:00",
        "2027-03-14T07:00+00:00",
        "2027-11-07T06:00+00:00",
        "2027-04-03T15:00+00:00",
        "2027-10-02T15:30+00:00",
        "2018-11-04T03:00+00:00",
        "2018-02-18T02:00+00:00",
        "2011-12-30T10:00+00:00",
        "2027-02-07T02:00+00:00",
    ]
).map(at)


near_changes = st.builds(
    lambda change, minutes, micro: change + timedelta(minutes=minutes, microseconds=micro),
    changes,
    st.integers(-3000, 300),
    st.sampled_from([0, 1, 999_999]),
)


instants = near_changes | st.datetimes(
    datetime(2009, 1, 1), datetime(2027, 9, 1), timezones=st.just(UTC)
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(some_timings, instants, st.floats(0.001, 0.999))
def test_due_times_increase_and_do_not_depend_on_where_the_walk_began(timing, after, part):
    moment = after
    for _ in range(12):
        following = timings.next_due(timing, moment)
        if following is None:
            break
        assert following > moment
        assert following.microsecond == 0
        just_before = following - timedelta(microseconds=1)
        between = min(moment + (following - moment) * part, just_before)
        assert timings.next_due(timing, just_before) == following
        assert timings.next_due(timing, between) == following
        moment = following


@settings(max_examples=300, deadline=None, derandomize=True)
@given(some_timings, instants, st.integers(1, 40))
def test_allowed_times_are_the_due_ones_that_nothing_excludes(timing, after, steps):
    due, moment = [], after
    while len(due) < steps and (moment := timings.next_due(timing, moment)) is not None:
        due.append(moment)
    allowed = [moment for moment in due if timings.excluded_by(timing, moment) is None]
    until = due[-1] if due else after
    found, moment = [], after
    while (moment := timings.next_allowed(timing, moment)) is not None and moment <= until:
        found.append(moment)
    assert found == allowed
    assert timings.latest_due(timing, after, until) == (due[-1] if due else None)
    assert timings.latest_allowed(timing, after, until) == (allowed[-1] if allowed else None)


def is_open(timing, instant):
    """Return whether filters and exclusions allow an instant, by the fires of a minute grid."""
    minutely = Timing(
        cadence=Every(60), zone=timing.zone, filters=timing.filters, exclusions=timing.exclusions
    )
    return timings.next_allowed(minutely, instant - timedelta(microseconds=1)) == instant


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    some_timings, st.datetimes(datetime(2012, 2, 1), datetime(2026, 1, 1), timezones=st.just(UTC))
)
def test_the_first_open_instant_of_spaced(timing, instant):
    spaced = Timing(
        cadence=Spaced(60), zone=timing.zone, filters=timing.filters, exclusions=timing.exclusions
    )
    found = timings.first_open(spaced, instant)
    assert found is not None
    assert found >= instant
    if found > instant:
        # It opens exactly at a full minute.
        assert is_open(timing, found)
        assert timings.first_open(spaced, instant + (found - instant) / 2) == found
        minute_before = found - timedelta(minutes=1)
        assert minute_before < instant or not is_open(timing, minute_before)
    assert timings.excluded_by(timing, found) is None


@pytest.mark.parametrize(
    ("at_text", "expected"),
    [
        ("2027-05-03T07:59:30.5+02:00", "2027-05-03T08:00+02:00"),
        ("2027-05-03T17:59:59.5+02:00", "2027-05-03T17:59:59.5+02:00"),
        ("2027-05-03T18:00+02:00", "2027-05-04T08:00+02:00"),
        ("2027-05-07T18:00+02:00", "2027-05-10T08:00+02:00"),
        ("2031-01-01T00:00+01:00", None),
    ],
)
def test_when_spaced_may_fire(at_text, expected):
    timing = Timing(
        cadence=Spaced(60),
        zone=BERLIN,
        filters=Filters(between="08:00-18:00", end="2030-12-31"),
        exclusions=(ExcludedDays(("sat", "sun")),),
    )
    assert timings.first_open(timing, at(at_text)) == (at(expected) if expected else None)


@pytest.mark.parametrize(
    ("zone", "at_text", "expected"),
    [
        (BERLIN, "2027-03-28T00:00+01:00", "gap"),
        (BERLIN, "2027-03-28T23:59+02:00", "gap"),
        (BERLIN, "2027-03-27T23:59+01:00", None),
        (BERLIN, "2027-03-29T00:00+02:00", None),
        (BERLIN, "2027-10-31T12:00+01:00", "repeated"),
        (BERLIN, "2027-11-01T00:00+01:00", None),
        ("America/Sao_Paulo", "2018-11-04T12:00-02:00", "gap"),
        ("America/Sao_Paulo", "2018-11-03T12:00-03:00", None),
        ("America/Sao_Paulo", "2018-02-17T12:00-02:00", "repeated"),
        ("America/Sao_Paulo", "2018-02-18T12:00-03:00", None),
        ("Pacific/Apia", "2011-12-31T12:00+14:00", "gap"),
        ("Asia/Kathmandu", "1986-01-01T12:00+05:45", "gap"),
        ("UTC", "2027-03-28T00:00+00:00", None),
    ],
)
def test_days_on_which_the_clock_jumps(zone, at_text, expected):
    assert timings.clock_change(Timing(cadence=Manual(), zone=zone), at(at_text)) == expected


def test_local_times_carry_their_offset():
    timing = Timing(cadence=Manual(), zone=BERLIN)
    assert timings.local(timing, at("2027-10-31T00:30:00.7+00:00")) == "2027-10-31 02:30:00+02:00"
    assert timings.local(timing, at("2027-10-31T01:30+00:00")) == "2027-10-31 02:30:00+01:00"


def test_descriptions_of_exclusions():
    timing = Timing(
        cadence=Every(60),
        zone=BERLIN,
        exclusions=(
            ExcludedDays(("sat", "sun")),
            ExcludedDates((date(2027, 5, 3),)),
            ExcludedRange(date(2027, 12, 24), date(2027, 12, 31)),
            ExcludedTimes("12:00-13:00"),
        ),
    )
    # Late on Friday in UTC is Saturday in Berlin.
    assert timings.excluded_by(timing, at("2027-04-30T22:00+00:00")) == "on Saturday or Sunday"
    assert timings.excluded_by(timing, at("2027-04-30T21:59+00:00")) is None
    assert timings.excluded_by(timing, at("2027-05-03T12:00+02:00")) == "on 2027-05-03"
    assert (
        timings.excluded_by(timing, at("2027-12-24T00:00+01:00")) == "from 2027-12-24 to 2027-12-31"
    )
    assert timings.excluded_by(timing, at("2027-05-04T12:59+02:00")) == "between 12:00-13:00"


def test_description_of_a_timing():
    timing = Timing(
        cadence=Daily("03:15"),
        zone=BERLIN,
        filters=Filters(
            days=("mon", "fri"),
            weeks=("first", "last"),
            months=(1, 12),
            between="03:00-04:00",
            start="2027-01-01",
            end="2028-01-01",
        ),
        exclusions=(ExcludedDays(("sat",)), ExcludedTimes("12:00-13:00")),
    )
    assert timings.describe(timing) == (
        "daily at 03:15, on Monday and Friday, in the first and last week of the month, "
        "in January and December, between 03:00-04:00, from 2027-01-01, until 2028-01-01, "
        "not on Saturday, not between 12:00-13:00 (Europe/Berlin)"
    )
    assert timings.describe(Timing(cadence=Every(60))) == "every minute (UTC)"
