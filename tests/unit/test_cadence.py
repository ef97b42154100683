"""Fire times of cadences on the naive wall clock, and their descriptions."""

from datetime import date, datetime, timedelta

import pytest
from headway_decisions.timing import cron
from headway_decisions.timing.cadence import (
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyDow,
    Once,
    Spaced,
    Weekly,
    fires_in_repeated_hour,
    next_wall,
)


def at(text):
    return datetime.fromisoformat(text)


def walk(cadence, wall, count):
    """Return the fires after a wall-clock time."""
    found, wall = [], at(wall)
    while len(found) < count and (wall := next_wall(cadence, wall)) is not None:
        found.append(wall)
    return [f"{fire:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for fire in found]


@pytest.mark.parametrize(
    ("cadence", "wall", "expected"),
    [
        pytest.param(
            Every(900),
            "2027-05-01 23:40:00.5",
            ["2027-05-01 23:45", "2027-05-02 00:00", "2027-05-02 00:15"],
            id="every",
        ),
        pytest.param(
            Every(7 * 3600),
            "2027-05-01 20:59:59",
            ["2027-05-01 21:00", "2027-05-02 00:00", "2027-05-02 07:00"],
            id="every-restarts-at-midnight",
        ),
        pytest.param(
            Daily("3:15"),
            "2027-12-31 03:14:59.9",
            ["2027-12-31 03:15", "2028-01-01 03:15"],
            id="daily",
        ),
        pytest.param(
            Daily("03:15:20"), "2027-12-31 03:15:20", ["2028-01-01 03:15:20"], id="strictly-after"
        ),
        pytest.param(
            Daily("00:00", every=3, anchor=date(2027, 3, 2)),
            "2027-03-01 00:00",
            ["2027-03-02 00:00", "2027-03-05 00:00", "2027-03-08 00:00"],
            id="every-third-day",
        ),
        pytest.param(
            Daily("00:00", every=3, anchor=date(2027, 3, 8)),
            "2027-03-01 00:00",
            ["2027-03-02 00:00", "2027-03-05 00:00"],
            id="an-anchor-ahead-counts-backwards-too",
        ),
        pytest.param(
            Weekly(("fri", "mon"), "09:00"),
            "2027-05-03 09:00",
            ["2027-05-07 09:00", "2027-05-10 09:00", "2027-05-14 09:00"],
            id="weekly-in-the-order-of-the-week",
        ),
        pytest.param(
            # The anchor is a Sunday: its week began on Monday the 26th of April.
            Weekly(("mon", "sun"), "09:00", every=2, anchor=date(2027, 5, 2)),
            "2027-04-26 09:00",
            ["2027-05-02 09:00", "2027-05-10 09:00", "2027-05-16 09:00"],
            id="every-second-week-counts-from-the-anchor-s-monday",
        ),
        pytest.param(
            Weekly(("wed",), "09:00", every=2, anchor=date(2027, 5, 3)),
            "2027-05-10 00:00",
            ["2027-05-19 09:00", "2027-06-02 09:00"],
            id="a-week-that-is-passed-over",
        ),
        pytest.param(
            Monthly((31,), "00:30"),
            "2027-03-31 00:30",
            ["2027-05-31 00:30", "2027-07-31 00:30", "2027-08-31 00:30"],
            id="months-without-a-31st-are-passed-over",
        ),
        pytest.param(
            Monthly((31, "last"), "00:30"),
            "2027-01-30 00:00",
            ["2027-01-31 00:30", "2027-02-28 00:30", "2027-03-31 00:30"],
            id="the-31st-that-is-the-last-fires-once",
        ),
        pytest.param(
            Monthly(("last", 1), "00:30"),
            "2028-02-01 00:30",
            ["2028-02-29 00:30", "2028-03-01 00:30"],
            id="the-last-day-of-a-leap-february",
        ),
        pytest.param(
            MonthlyDow(("first", "last"), ("mon",), "08:00"),
            "2027-05-01 00:00",
            ["2027-05-03 08:00", "2027-05-31 08:00", "2027-06-07 08:00", "2027-06-28 08:00"],
            id="first-and-last-monday",
        ),
        pytest.param(
            # February 2027 has four of each weekday, so the fourth is the last.
            MonthlyDow(("fourth", "last"), ("sun",), "08:00"),
            "2027-01-25 00:00",
            ["2027-01-31 08:00", "2027-02-28 08:00", "2027-03-28 08:00"],
            id="the-fourth-that-is-the-last-fires-once",
        ),
        pytest.param(
            MonthlyDow(("second", "third"), ("tue", "thu"), "08:00"),
            "2027-12-31 00:00",
            ["2028-01-11 08:00", "2028-01-13 08:00", "2028-01-18 08:00", "2028-01-20 08:00"],
            id="over-the-turn-of-the-year",
        ),
        pytest.param(Once("2027-06-01 09:00"), "2020-01-01 00:00", ["2027-06-01 09:00"], id="once"),
        pytest.param(Once("2027-06-01 09:00"), "2027-06-01 09:00", [], id="once-is-over"),
        pytest.param(
            Cron("15 3 * * *"), "2027-05-01 03:15:30", ["2027-05-02 03:15"], id="within-its-minute"
        ),
    ],
)
def test_fires(cadence, wall, expected):
    assert walk(cadence, wall, len(expected) or 1) == expected


@pytest.mark.parametrize(
    ("cadence", "expected"),
    [
        (Cron("* * * * *"), True),
        (Cron("30 */1 * * *"), True),
        (Cron("30 0-23 * * *"), True),
        (Cron("0 30 * * * *"), True),
        (Cron("30 */2 * * *"), False),
        (Cron("30 1-23 * * *"), False),
        (Cron("* 2 * * *"), False),
        (Every(3600), True),
        (Every(3601), False),
        (Daily("02:30"), False),
        (Weekly(("sun",), "02:30"), False),
        (Monthly((31,), "02:30"), False),
        (MonthlyDow(("last",), ("sun",), "02:30"), False),
        (Once("2027-10-31 02:30"), False),
    ],
    ids=str,
)
def test_only_hourly_cadences_fire_twice_in_a_repeated_hour(cadence, expected):
    assert fires_in_repeated_hour(cadence) is expected


@pytest.mark.parametrize(
    ("cadence", "expected"),
    [
        (Cron("15 3 * * *"), "cron 15 3 * * *"),
        (Every(1), "every second"),
        (Every(900), "every 15 minutes"),
        (Every(5400), "every 90 minutes"),
        (Every(86_400), "every day"),
        (Daily("03:15"), "daily at 03:15"),
        (Daily("03:15", every=3), "every 3 days at 03:15, counted from 2000-01-01"),
        (Weekly(("mon", "thu"), "9:00"), "weekly on Monday and Thursday at 9:00"),
        (
            Weekly(("mon",), "9:00", every=2),
            "every 2 weeks on Monday at 9:00, counted from 1999-12-27",
        ),
        (
            Monthly((1, 22, 13, "last"), "9:00"),
            "monthly on the 1st, 22nd, 13th and last day at 9:00",
        ),
        (
            MonthlyDow(("first", "last"), ("fri",), "9:00"),
            "monthly on the first and last Friday at 9:00",
        ),
        (Once("2027-06-01 09:00"), "once at 2027-06-01 09:00"),
        (Spaced(3600), "1 hour after its last work has ended"),
        (Spaced(1.5), "1.5 seconds after its last work has ended"),
        (Manual(), "only when triggered"),
    ],
)
def test_descriptions_of_cadences(cadence, expected):
    assert str(cadence) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/7 23 * * *", ["23:49", "23:56", "23:00", "23:07"]),
        ("0 22-2/2 * * *", ["00:00", "02:00", "22:00", "00:00"]),
        ("20 0 0 * * *", ["00:00:20"]),
        ("@hourly", ["00:00", "01:00"]),
    ],
)
def test_times_of_cron(expression, expected):
    found = walk(Cron(expression), "2027-05-01 23:45", len(expected))
    assert [fire.split(" ")[1] for fire in found] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 L * *", ["05-31", "06-30", "07-31"]),
        ("0 0 1,L * *", ["05-31", "06-01", "06-30"]),
        ("0 0 * * 5#3", ["05-21", "06-18"]),
        ("0 0 * * L5", ["05-28", "06-25"]),
        ("0 0 * * 5-1", ["05-02", "05-03", "05-07", "05-08"]),
        ("0 0 * * 7", ["05-02", "05-09"]),
        ("0 0 0 * * 7", ["05-02", "05-09"]),
        ("0 0 15W * *", ["05-14", "06-15", "07-15", "08-16"]),
        ("0 0 1W * *", ["05-03", "06-01"]),
        ("0 0 31W * *", ["05-31", "06-30", "07-30"]),
        # If both are restricted, either suffices.
        ("0 0 13 * 5", ["05-07", "05-13", "05-14"]),
        ("0 0 13 * 5#3", ["05-13", "05-21", "06-13", "06-18"]),
        ("0 0 15W * 3", ["05-05", "05-12", "05-14", "05-19"]),
        # A star with steps does not count as a restriction: both have to match.
        ("0 0 */10 * 1", ["05-31", "06-21", "10-11"]),
        ("0 0 13 * */2", ["05-13", "06-13", "07-13"]),
        ("0 0 ? * 1", ["05-03", "05-10"]),
        ("0 0 * 2 *", ["02-01", "02-02"]),
        ("@daily", ["05-02", "05-03"]),
        ("@midnight", ["05-02", "05-03"]),
        ("@weekly", ["05-02", "05-09"]),
        ("@monthly", ["06-01", "07-01"]),
        ("@yearly", ["01-01", "01-01"]),
        (" @annually ", ["01-01", "01-01"]),
    ],
)
def test_days_of_cron(expression, expected):
    found = walk(Cron(expression), "2027-05-01 00:00", len(expected))
    assert [fire[5:10] for fire in found] == expected
    cron.check(expression)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("61 * * * *", "not valid"),
        ("* * *", "3 fields"),
        ("* * * * * * *", "7 fields"),
        ("@reboot", "'@reboot' has no time"),
        ("@fortnightly", "use one of @yearly, @annually, @monthly"),
        ("0 0 30 2 *", "can never occur"),
        ("0 0 31 4 *", "can never occur"),
        ("0 0 31 2,4,6 *", "can never occur"),
        ("0 0 * 2 1#5", "no occurrence within 10 years"),
        ("a b c d e", "not valid"),
        ("", "0 fields"),
        ("R * * * *", "random"),
        ("r(1-5) * * * *", "random"),
        ("0 H(2-4) * * *", "random"),
        ("0 H/4 * * *", "random"),
        ("0 5-5 * * *", "5-5 ends where it starts: write 5"),
        ("0 0 * * mon-mon/2", "mon-mon ends where it starts"),
        ("0 23/2 * * *", "write 23"),
        ("0 0 * DEC/2 *", "write dec"),
        ("59/2 * * * * *", "write 59"),
        ("0 0 0 0 * *", "out of range"),
        ("60 * * * * *", "out of range"),
        ("0 0 * * 1#1,1", "write two schedules"),
        ("0 0 * * 1#6", "not valid"),
        ("0 0 * * 5L", "not valid"),
        ("0 */0 * * *", "not valid"),
        ("٣ * * * *", "ASCII"),
        ("* " * 101, "longer than 200"),
    ],
)
def test_invalid_cron_expressions(expression, complaint):
    with pytest.raises(cron.InvalidCron, match=complaint) as refused:
        cron.check(expression)
    assert "\n" not in str(refused.value)


def test_the_29th_of_february():
    cron.check("0 0 29 2 *")
    assert walk(Cron("0 0 29 2 *"), "2096-02-29 00:00", 2) == [
        "2104-02-29 00:00",
        "2108-02-29 00:00",
    ]


def test_cron_gives_up_after_ten_years():
    # A February has a fifth Monday only if its 29th is a Monday.
    seldom = Cron("0 0 * 2 1#5")
    assert next_wall(seldom, datetime(2030, 1, 1)) is None
    assert next_wall(seldom, datetime(2035, 1, 1)) == datetime(2044, 2, 29)


def test_a_second_before_is_always_found_again():
    for cadence in (Every(61), Daily("4:00"), Monthly((30,), "4:00"), Cron("*/7 3 * * 2")):
        fire = next_wall(cadence, datetime(2027, 2, 3, 4, 5, 6, 7))
        assert next_wall(cadence, fire - timedelta(microseconds=1)) == fire
