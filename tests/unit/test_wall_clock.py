"""When cadences fire, over gaps and repeated hours."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from headway_decisions.cadence import Cadence, Cron, Every, InvalidCadence, check
from headway_decisions.wall_clock import latest_between, next_after
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
CADENCES: list[Cadence] = [
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


def fires(cadence: Cadence, zone: str, after: str, until: str) -> list[str]:
    """Every fire in (after, until], as local times with their offset."""
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


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CADENCES), st.sampled_from(ZONES), instants)
def test_fires_are_strictly_later_and_nothing_lies_between(cadence, zone, after):
    tz = ZoneInfo(zone)
    first = next_after(cadence, tz, after)
    assert first is not None
    assert first > after
    # Asked from just before it, or from anywhere between, the answer is the same.
    assert next_after(cadence, tz, first - timedelta(microseconds=1)) == first
    assert next_after(cadence, tz, after + (first - after) / 2) == first
    second = next_after(cadence, tz, first)
    assert second is not None
    assert second > first


@settings(max_examples=200, deadline=None)
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
    until = walked[-2] + (walked[-1] - walked[-2]) * part
    assert latest_between(cadence, tz, after, until) == (walked[-2] if steps else None)


@pytest.mark.parametrize(
    ("cadence", "complaint"),
    [
        (Cron("61 * * * *"), "not valid"),
        (Cron("* * *"), "3 fields"),
        (Cron("* * * * * * *"), "7 fields"),
        (Cron("0 0 30 2 *"), "no"),
        (Cron("a b c d e"), "not valid"),
        (Cron(""), "0 fields"),
        (Cron("R * * * *"), "random"),
        (Cron("0 H(2-4) * * *"), "random"),
        (Every(0), "one second"),
        (Every(-5), "one second"),
        (Every(86_401), "a day"),
    ],
)
def test_what_cannot_be_kept_is_refused(cadence, complaint):
    with pytest.raises(InvalidCadence, match=complaint):
        check(cadence)


@pytest.mark.parametrize("cadence", CADENCES, ids=str)
def test_what_can_be_kept_is_not(cadence):
    check(cadence)


def test_the_29th_of_february_is_within_ten_years():
    check(Cron("0 0 29 2 *"))
    leap = next_after(Cron("0 0 29 2 *"), ZoneInfo("UTC"), at("2096-03-01T00:00+00:00"))
    assert leap == at("2104-02-29T00:00+00:00")
