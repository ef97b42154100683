"""Timings: due and allowed times in zones, and what is wrong with a timing."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from headway_decisions import timing as timings
from headway_decisions.cadence import (
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyDow,
    Once,
    Spaced,
    Weekly,
)
from headway_decisions.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.timing import Timing
from hypothesis import given, settings
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def walk(timing, after, until, following=timings.next_due):
    """Every fire in (after, until], as local times with their offset."""
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
            # At the instant at which it would be three, the clock goes back to two.
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
            # Winter is the one with daylight saving here, a negative one.
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


def test_exclusions_judge_what_the_clock_shows_at_the_fire():
    # The time 02:30 is in the gap and fires at 03:00, which nothing excludes.
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
def test_what_knows_no_wall_clock_is_never_due(cadence):
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


FILTERS = [
    Filters(),
    Filters(between="01:30-03:30"),
    Filters(between="22:00-02:30", days=("sat", "sun")),
    Filters(weeks=("last",), months=(3, 10, 11)),
    Filters(start="2011-12-30", end="2027-10-31 02:30"),
]
EXCLUSIONS = [
    (),
    (ExcludedDays(("sat",)),),
    (ExcludedTimes("02:15-02:45"),),
    (ExcludedTimes("23:00-01:00"), ExcludedDates((date(2027, 10, 31), date(2011, 12, 31)))),
    (ExcludedRange(date(2018, 11, 1), date(2018, 11, 4)), ExcludedDays(("mon", "tue"))),
]
CADENCES = [
    Every(900),
    Every(7200),
    Cron("*/20 2 * * *"),
    Cron("10 * * * *"),
    Daily("02:30"),
    Weekly(("sun", "fri"), "00:00", every=2),
    Monthly((1, 31, "last"), "02:30"),
    MonthlyDow(("first", "last"), ("sun",), "01:15"),
]
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
# Mostly around the changes of clocks, where something can go wrong.
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
    """Whether filters and exclusions let an instant through, read off the fires of a grid."""
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
        # It opens at a full minute, and not before.
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


def test_what_excludes_in_words():
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


def test_a_timing_in_words():
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


def of(cadence=Every(3600), **filters):  # noqa: B008 - immutable
    return Timing(cadence=cadence, filters=Filters(**filters))


def without(*exclusions):
    return Timing(cadence=Every(3600), exclusions=exclusions)


@pytest.mark.parametrize(
    ("timing", "complaint"),
    [
        (of(Cron("61 * * * *")), "cron expression '61 * * * *' is not valid"),
        (of(Cron("0 0 30 2 *")), "can never occur"),
        (of(Cron(5)), "cron expression 5 is not valid"),
        (of(Every(0)), "every(0 s) is not valid: a step is a whole number of seconds, between one"),
        (of(Every(86_401)), "between one second and a day"),
        (of(Every(60.6)), "every(60.6 s) is not valid"),
        (of(Every(True)), "every(True s) is not valid"),
        (of(Every(10**5000)), "every(of type int s) is not valid"),
        (of(Daily("25:00")), "time of day '25:00' is not valid: write it as HH:MM or HH:MM:SS"),
        (of(Daily("12:60")), "time of day '12:60'"),
        (of(Daily("9")), "time of day '9'"),
        (of(Daily(9)), "time of day 9 is not valid"),
        (of(Daily("9:00", every=0)), "every=0 is not valid: write a whole number of days, from 1"),
        (of(Daily("9:00", anchor="2027")), "anchor '2027' is not a date"),
        (of(Daily("9:00", anchor=datetime(2027, 1, 1))), "is not a date"),
        (of(Weekly((), "9:00")), "days is empty: name at least one of weekdays mon, tue"),
        (of(Weekly(("monday",), "9:00")), "days holds 'monday', which is not valid: use weekdays"),
        (of(Weekly(["mon"], "9:00")), "days ['mon'] is not valid: write a tuple"),
        (of(Weekly(("mon",), "9:00", every=521)), "whole number of weeks, from 1 to 520"),
        (of(Monthly((32,), "9:00")), "days holds 32, which is not valid: use numbers 1 to 31"),
        (of(Monthly((True,), "9:00")), "days holds True"),
        (of(MonthlyDow(("fifth",), ("mon",), "9:00")), "weeks holds 'fifth'"),
        (of(Once("2027-06-01")), "at '2027-06-01' names no time: write it as 'YYYY-MM-DD HH:MM'"),
        (of(Once("2027-02-30 09:00")), "at '2027-02-30 09:00' is not valid"),
        (of(Once("9999-12-31 23:00")), "its year must lie between 1970 and 2199"),
        (of(Spaced(0)), "spaced(0 s) is not valid"),
        (of(Spaced(float("nan"))), "spaced(nan s) is not valid"),
        (of(Spaced(10**400)), "is not valid: write a number of seconds"),
        (of(None), "None is not a cadence"),
        (of(Manual(), days=("mon",)), "a manual cadence takes no filters"),
        (of(days=("funday",)), "days holds 'funday'"),
        (of(days=None), "days None is not valid"),
        (of(months=(0,)), "months holds 0, which is not valid: use 1 to 12"),
        (of(months=(13,)), "months holds 13"),
        (of(weeks=("fifth",)), "weeks holds 'fifth', which is not valid: use first, second"),
        (of(between="8:00"), "window '8:00' is not valid: write it as HH:MM-HH:MM"),
        (of(between="8:00-24:00"), "time of day '24:00' is not valid"),
        (of(between="8:00-08:00"), "window '8:00-08:00' ends where it starts"),
        (of(between=8), "window 8 is not valid"),
        (of(start="tomorrow"), "start 'tomorrow' is not valid: write it as YYYY-MM-DD HH:MM"),
        (of(start=date(2027, 1, 1)), "start datetime.date(2027, 1, 1) is not valid"),
        (of(end="2027-13-01"), "end '2027-13-01' is not valid"),
        (of(start="2027-05-02", end="2027-05-01"), "end '2027-05-01' lies before start"),
        (of(Daily("3:00"), between="4:00-5:00"), "daily at 3:00 never fires: its filters"),
        (of(Once("2027-05-03 09:00"), days=("tue",)), "once at 2027-05-03 09:00 never fires"),
        (of(Monthly((31,), "9:00"), months=(4,)), "never fires"),
        (of(Daily("9:00"), start="2027-05-01 10:00", end="2027-05-02 08:00"), "never fires"),
        (Timing(cadence=Every(60), zone="Mars/Base"), "time zone 'Mars/Base' is not known: use a"),
        (Timing(cadence=Every(60), zone=None), "time zone None is not known"),
        (Timing(cadence=Every(60), filters=None), "None are not filters"),
        (Timing(cadence=Every(60), exclusions=None), "exclusions None are not valid"),
        (without("sat"), "'sat' is not an exclusion"),
        (without(ExcludedDays(())), "days is empty"),
        (without(ExcludedDates(("2027-01-01",))), "dates holds '2027-01-01', which is not valid"),
        (without(ExcludedRange(date(2027, 1, 2), date(2027, 1, 1))), "ends on 2027-01-01, before"),
        (without(ExcludedRange(date(2027, 1, 2), None)), "last None is not a date"),
        (without(ExcludedTimes("12-13")), "time of day '12' is not valid"),
        (
            without(ExcludedTimes("00:00-12:00"), ExcludedTimes("12:00-00:00")),
            "every hour never fires: its exclusions cover all its times",
        ),
        (
            Timing(
                cadence=Spaced(60),
                filters=Filters(days=("sat",)),
                exclusions=(ExcludedDays(("sat",)),),
            ),
            "1 minute after its last success never fires: its exclusions",
        ),
    ],
)
def test_one_thing_wrong_is_one_line(timing, complaint):
    found = timings.problems(timing)
    assert len(found) == 1, found
    assert complaint in found[0]
    assert "\n" not in found[0]


def test_everything_wrong_is_told_at_once():
    timing = Timing(
        cadence=Weekly(("mon", "xyz"), "24:00"),
        zone="Nowhere",
        filters=Filters(months=(0, 13), between="x"),
        exclusions=(ExcludedTimes("1:00-1:00"),),
    )
    assert len(timings.problems(timing)) == 7


GOOD = [
    *(Timing(cadence=cadence, zone=zone) for cadence in CADENCES for zone in ("UTC", BERLIN)),
    *(Timing(cadence=Every(3600), filters=filters) for filters in FILTERS),
    *(Timing(cadence=Every(3600), exclusions=exclusions) for exclusions in EXCLUSIONS),
    Timing(cadence=Cron("0 0 29 2 *")),
    Timing(cadence=Once("1999-05-03 09:00")),
    Timing(cadence=Once("2150-05-03 09:00"), filters=Filters(months=(5,))),
    Timing(cadence=Daily("9:00"), filters=Filters(end="1999-12-31")),
    Timing(cadence=Daily("9:00"), filters=Filters(start="2099-12-31", end="2099-12-31")),
    Timing(cadence=Daily("9:00"), exclusions=(ExcludedRange(date(2050, 1, 1), date.max),)),
    Timing(cadence=Spaced(0.5 + 1), filters=Filters(days=("sat",))),
    Timing(cadence=Manual(), exclusions=(ExcludedDays(("sat",)),)),
]


@pytest.mark.parametrize("timing", GOOD, ids=timings.describe)
def test_what_can_be_kept_has_no_problems_and_survives_the_wire(timing):
    assert timings.problems(timing) == []
    assert msgspec.json.decode(msgspec.json.encode(timing), type=Timing) == timing


rubbish = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.text("0123456789:-*/,LW#rh ", max_size=20),
    st.sampled_from([[], {}, (), ("mon", None), ([],), b"9:00", 10**5000, object(), date.max]),
)
kinds = st.sampled_from([Cron, Every, Daily, Weekly, Monthly, MonthlyDow, Once, Spaced])
rubbish_cadences = kinds.flatmap(
    lambda kind: st.builds(kind, *[rubbish] * len(kind.__struct_fields__))
)
rubbish_exclusions = st.one_of(
    st.builds(ExcludedDays, rubbish),
    st.builds(ExcludedDates, rubbish),
    st.builds(ExcludedRange, rubbish, rubbish),
    st.builds(ExcludedTimes, rubbish),
    rubbish,
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.builds(
        Timing,
        cadence=rubbish_cadences | rubbish | st.just(Every(60)),
        zone=rubbish | st.just("UTC"),
        filters=st.builds(
            Filters, days=rubbish, months=rubbish, weeks=rubbish, between=rubbish, start=rubbish
        )
        | rubbish
        | st.just(Filters()),
        exclusions=rubbish | st.lists(rubbish_exclusions, max_size=2).map(tuple),
    )
)
def test_rubbish_is_told_and_never_raises(timing):
    found = timings.problems(timing)
    assert all(line and "\n" not in line for line in found)
    if not found:
        timings.next_allowed(timing, at("2027-05-01T00:00+00:00"))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(
        st.text("0123456789*/,-LWlw#?", min_size=1, max_size=5)
        | st.sampled_from(["*", "*/5", "1-5", "L", "mon", "jan", "5#2", "15W", "l5", "sun-tue"]),
        min_size=5,
        max_size=6,
    )
)
def test_cron_fields_of_any_kind_are_kept_or_refused(fields):
    timing = Timing(cadence=Cron(" ".join(fields)))
    if timings.problems(timing) == []:
        first = timings.next_due(timing, at("2024-01-01T00:00+00:00"))
        assert first is not None
        assert timings.latest_due(timing, at("2023-12-31T00:00+00:00"), first) == first
