"""Fire times of cadences over gaps and repeated hours."""

from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from headway_decisions.timing import wall_clock
from headway_decisions.timing.cadence import (
    Clocked,
    Cron,
    Daily,
    Every,
    Once,
    fires_in_repeated_hour,
    next_wall,
)
from headway_decisions.timing.wall_clock import latest, transitions, zone_named
from hypothesis import given, settings
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"
ZONES = [
    "UTC",
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
]
CADENCES: list[Clocked] = [
    Cron("30 2 * * *"),
    Cron("*/20 * * * *"),
    Cron("0 */6 * * *"),
    Cron("15 0 1 * *"),
    Cron("*/10 * * * * *"),
    Every(60),
    Every(1800),
    Every(3600),
    Every(7 * 3600),
    Every(86_400),
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def next_after(cadence: Clocked, zone: ZoneInfo, after: datetime) -> datetime | None:
    repeats = fires_in_repeated_hour(cadence)
    return wall_clock.next_after(partial(next_wall, cadence), zone, after, repeats=repeats)


def fires(cadence: Clocked, zone: str, after: str, until: str) -> list[str]:
    """Return the fires in (after, until] as local times with their offset."""
    found, moment = [], next_after(cadence, ZoneInfo(zone), at(after))
    while moment is not None and moment <= at(until):
        found.append(moment.astimezone(ZoneInfo(zone)).isoformat())
        moment = next_after(cadence, ZoneInfo(zone), moment)
    return found


@pytest.mark.parametrize(
    ("cadence", "zone", "after", "until", "expected"),
    [
        pytest.param(
            Cron("15 3 * * *"),
            BERLIN,
            "2027-01-31T04:00+01:00",
            "2027-02-02T04:00+01:00",
            ["2027-02-01T03:15:00+01:00", "2027-02-02T03:15:00+01:00"],
            id="plain-days",
        ),
        pytest.param(
            Cron("30 2 * * *"),
            BERLIN,
            "2027-03-27T12:00+01:00",
            "2027-03-29T12:00+02:00",
            ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"],
            id="a-time-in-the-gap-fires-right-after-it",
        ),
        pytest.param(
            Cron("*/15 2 * * *"),
            BERLIN,
            "2027-03-27T12:00+01:00",
            "2027-03-28T12:00+02:00",
            ["2027-03-28T03:00:00+02:00"],
            id="many-times-in-the-gap-fire-once",
        ),
        pytest.param(
            Cron("0 3 * * *"),
            BERLIN,
            "2027-03-28T00:00+01:00",
            "2027-03-28T12:00+02:00",
            ["2027-03-28T03:00:00+02:00"],
            id="the-gap-s-end-itself-fires-once",
        ),
        pytest.param(
            Cron("30 2 * * *"),
            BERLIN,
            "2027-10-31T00:00+02:00",
            "2027-10-31T12:00+01:00",
            ["2027-10-31T02:30:00+02:00"],
            id="a-fixed-hour-fires-at-the-first-passing-only",
        ),
        pytest.param(
            Cron("30 * * * *"),
            BERLIN,
            "2027-10-31T01:45+02:00",
            "2027-10-31T03:30+01:00",
            [
                "2027-10-31T02:30:00+02:00",
                "2027-10-31T02:30:00+01:00",
                "2027-10-31T03:30:00+01:00",
            ],
            id="every-hour-fires-in-both-passings",
        ),
        pytest.param(
            Every(1800),
            BERLIN,
            "2027-10-31T02:00+02:00",
            "2027-10-31T03:00+01:00",
            [
                "2027-10-31T02:30:00+02:00",
                "2027-10-31T02:00:00+01:00",
                "2027-10-31T02:30:00+01:00",
                "2027-10-31T03:00:00+01:00",
            ],
            id="a-grid-ticks-through-both-passings",
        ),
        pytest.param(
            Every(2 * 3600),
            BERLIN,
            "2027-10-31T00:30+02:00",
            "2027-10-31T05:00+01:00",
            ["2027-10-31T02:00:00+02:00", "2027-10-31T04:00:00+01:00"],
            id="a-coarse-grid-fires-once",
        ),
        pytest.param(
            Every(7 * 3600),
            "UTC",
            "2027-05-01T20:00+00:00",
            "2027-05-02T08:00+00:00",
            ["2027-05-01T21:00:00+00:00", "2027-05-02T00:00:00+00:00", "2027-05-02T07:00:00+00:00"],
            id="a-step-that-does-not-divide-the-day-restarts-at-midnight",
        ),
        pytest.param(
            Cron("15 2 * * *"),
            "Australia/Lord_Howe",
            "2027-10-02T12:00+10:30",
            "2027-10-03T12:00+11:00",
            ["2027-10-03T02:30:00+11:00"],
            id="a-gap-of-half-an-hour",
        ),
        pytest.param(
            Cron("0 0 * * *"),
            "America/Sao_Paulo",
            "2018-11-03T12:00-03:00",
            "2018-11-05T12:00-02:00",
            ["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"],
            id="midnight-in-the-gap",
        ),
        pytest.param(
            Cron("0 12 * * *"),
            "Pacific/Apia",
            "2011-12-28T13:00-10:00",
            "2011-12-31T13:00+14:00",
            ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"],
            id="a-day-that-never-was",
        ),
        pytest.param(
            Cron("30 0 3 * * *"),
            "UTC",
            "2027-05-01T00:00+00:00",
            "2027-05-02T00:00+00:00",
            ["2027-05-01T03:00:30+00:00"],
            id="six-fields-begin-with-seconds",
        ),
    ],
)
def test_fires(cadence, zone, after, until, expected):
    assert fires(cadence, zone, after, until) == expected


instants = st.datetimes(
    min_value=datetime(2009, 1, 1), max_value=datetime(2031, 1, 1), timezones=st.just(UTC)
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(CADENCES), st.sampled_from(ZONES), instants)
def test_fires_are_strictly_later_and_nothing_lies_between(cadence, zone, after):
    tz = ZoneInfo(zone)
    first = next_after(cadence, tz, after)
    assert first is not None
    assert first > after
    # From just before it, or from anywhere between, the result is the same.
    assert next_after(cadence, tz, first - timedelta(microseconds=1)) == first
    assert next_after(cadence, tz, after + (first - after) / 2) == first
    second = next_after(cadence, tz, first)
    assert second is not None
    assert second > first


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(CADENCES),
    st.sampled_from(ZONES),
    instants,
    st.integers(0, 60),
    st.floats(0, 0.99),
)
def test_the_latest_is_the_last_one_of_a_walk(cadence, zone, after, steps, part):
    tz = ZoneInfo(zone)
    walked = [after]
    while len(walked) < steps + 2:
        moment = next_after(cadence, tz, walked[-1])
        assert moment is not None
        walked.append(moment)
    # Part of a microsecond may be rounded up, but the next fire must stay ahead.
    until = walked[-2] + (walked[-1] - walked[-2]) * part
    until = min(until, walked[-1] - timedelta(microseconds=1))
    found = latest(lambda instant: next_after(cadence, tz, instant), after, until)
    assert found == (walked[-2] if steps else None)


def test_the_29th_of_february_is_within_ten_years():
    leap = next_after(Cron("0 0 29 2 *"), ZoneInfo("UTC"), at("2096-03-01T00:00+00:00"))
    assert leap == at("2104-02-29T00:00+00:00")


@pytest.mark.parametrize(
    ("zone", "year", "expected"),
    [
        (BERLIN, 2027, ["2027-03-28T01:00:00", "2027-10-31T01:00:00"]),
        ("UTC", 2027, []),
        ("Africa/Casablanca", 2027, ["2027-02-07T02:00:00", "2027-03-14T02:00:00"]),
        (
            "Pacific/Apia",
            2011,
            ["2011-04-02T14:00:00", "2011-09-24T14:00:00", "2011-12-30T10:00:00"],
        ),
        # Local mean time was 53 minutes and 28 seconds ahead of Greenwich.
        (BERLIN, 1893, ["1893-03-31T23:06:32"]),
        # The transition ends the year of UTC, and belongs to it.
        ("Asia/Singapore", 1981, ["1981-12-31T16:00:00"]),
    ],
)
def test_transitions(zone, year, expected):
    found = transitions(ZoneInfo(zone), year)
    assert [moment.at.replace(tzinfo=None).isoformat() for moment in found] == expected
    for moment in found:
        before = (moment.at - timedelta(seconds=1)).astimezone(ZoneInfo(zone))
        assert (before.utcoffset(), moment.at.astimezone(ZoneInfo(zone)).utcoffset()) == moment[1:]


def test_a_cadence_at_its_end_still_fires_while_the_clock_repeats_it():
    def until_half_past_two(wall):
        fire = next_wall(Every(600), wall)
        return fire if fire <= datetime(2027, 10, 31, 2, 30) else None

    found, moment = [], at("2027-10-31T02:10+02:00")
    zone = ZoneInfo(BERLIN)
    while moment := wall_clock.next_after(until_half_past_two, zone, moment, repeats=True):
        found.append(moment.astimezone(zone).isoformat())
    assert found == [
        "2027-10-31T02:20:00+02:00",
        "2027-10-31T02:30:00+02:00",
        "2027-10-31T02:00:00+01:00",
        "2027-10-31T02:10:00+01:00",
        "2027-10-31T02:20:00+01:00",
        "2027-10-31T02:30:00+01:00",
    ]


def test_local_mean_time_of_odd_seconds():
    assert fires(Daily("12:00"), BERLIN, "1893-03-30T13:00+01:00", "1893-04-01T23:00+01:00") == [
        "1893-03-31T12:00:00+00:53:28",
        "1893-04-01T12:00:00+01:00",
    ]


def test_once_in_a_repeated_hour_fires_once():
    once = Once("2027-10-31 02:30")
    assert fires(once, BERLIN, "2027-10-01T00:00+02:00", "2027-12-01T00:00+01:00") == [
        "2027-10-31T02:30:00+02:00"
    ]
    assert next_after(once, ZoneInfo(BERLIN), at("2027-10-31T02:10+01:00")) is None


def test_the_latest_of_ten_thousand_seconds_takes_few_steps():
    steps = []

    def counted(wall):
        steps.append(wall)
        return next_wall(Every(1), wall)

    def following(instant):
        return wall_clock.next_after(counted, ZoneInfo("UTC"), instant, repeats=True)

    until = at("2027-05-05T12:00:00.5+00:00")
    found = latest(following, until - timedelta(days=9000), until)
    assert found == at("2027-05-05T12:00+00:00")
    assert len(steps) < 40


@pytest.mark.parametrize("name", ["Mars/Base", "", "../etc/passwd", "right/UTC", "a\0b", "Europe"])
def test_an_unknown_zone(name):
    with pytest.raises(ValueError, match="is not known: use a name such as 'Europe/Berlin'"):
        zone_named(name)
