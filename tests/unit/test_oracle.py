"""Fire times compared with cronsim, with croniter's own search and with plain counting."""

import calendar
from datetime import UTC, date, datetime, time, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from cronsim import CronSim, CronSimError
from headway_decisions.timing import cron
from headway_decisions.timing.cadence import (
    Cron,
    Daily,
    Every,
    Monthly,
    MonthlyDow,
    Weekly,
    next_wall,
)
from headway_decisions.timing.calendar import Filters
from headway_decisions.timing.timing import Timing, next_due
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.thorough

WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
walls = st.datetimes(datetime(2019, 1, 1), datetime(2032, 1, 1))


def ours(expression, wall, count):
    found = []
    while len(found) < count and (wall := cron.next_match(expression, wall)) is not None:
        found.append(wall)
    return found


def theirs(expression, wall, count):
    simulation = CronSim(expression, wall)
    return [next(simulation) for _ in range(count)]


def field(low, high):
    """Generate a field that cronsim and we interpret alike."""
    number = st.integers(low, high)
    ends = st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])
    spans = ends.map(lambda pair: f"{pair[0]}-{pair[1]}")
    stepped = st.builds("{}/{}".format, spans, st.integers(1, 9))
    lists = st.lists(number.map(str) | spans, min_size=1, max_size=3).map(",".join)
    return lists | stepped


def starred(low, high):
    return st.just("*") | st.integers(1, 20).map("*/{}".format) | field(low, high)


@st.composite
def expressions(draw):
    minute, hour, month = draw(starred(0, 59)), draw(starred(0, 23)), draw(starred(1, 12))
    day, weekday = draw(starred(1, 31)), draw(starred(0, 6))
    return f"{minute} {hour} {day} {month} {weekday}"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(expressions(), walls)
def test_cron_fires_where_cronsim_does(expression, wall):
    try:
        cron.check(expression)
    except cron.InvalidCron:
        assume(False)
    assert ours(expression, wall, 12) == theirs(expression, wall, 12)


@pytest.mark.parametrize(
    ("our_expression", "their_expression"),
    [
        ("0 0 L * *", "0 0 L * *"),
        ("0 12 1,15,L * *", "0 12 1,15,L * *"),
        ("0 0 * * 5#3", "0 0 * * 5#3"),
        ("0 0 * * mon#1,wed#5", "0 0 * * mon#1,wed#5"),
        ("0 0 13 * 5#2", "0 0 13 * 5#2"),
        ("0 0 L * 1#1", "0 0 L * 1#1"),
        ("0 0 29 2 *", "0 0 29 2 *"),
        ("*/7 */5 * jan-mar sun", "*/7 */5 * jan-mar sun"),
        ("5/20 3/6 2/9 * *", "5/20 3/6 2/9 * *"),
        ("*/25 * * * * *", "*/25 * * * * *"),
        ("10,50 59 23 31 12 *", "10,50 59 23 31 12 *"),
        # Two spellings: we write the last Friday L5, cronsim 5L.
        ("0 0 * * L5", "0 0 * * 5L"),
        ("0 0 * * 5-1", "0 0 * * 5,6,0,1"),
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("0 0 * nov-feb *", "0 0 * 11,12,1,2 *"),
        ("0 0 ? * 1", "0 0 * * 1"),
    ],
)
def test_expressions_that_mean_the_same(our_expression, their_expression):
    wall = datetime(2027, 1, 30, 23, 58, 30)
    assert ours(our_expression, wall, 60) == theirs(their_expression, wall, 60)


@pytest.mark.parametrize("expression", ["0 0 * * 5-1", "0 0 15W * *", "0 0 ? * 1", "0 0 * * L5"])
def test_expressions_that_only_we_read(expression):
    cron.check(expression)
    with pytest.raises(CronSimError):
        CronSim(expression, datetime(2027, 1, 1))


@pytest.mark.parametrize("expression", ["0 0 LW * *", "0 0 * * 5L", "0 0 * * 5#1,2"])
def test_expressions_that_only_cronsim_reads(expression):
    CronSim(expression, datetime(2027, 1, 1))
    with pytest.raises(cron.InvalidCron):
        cron.check(expression)


@pytest.mark.parametrize(
    ("expression", "after", "our_hours", "their_hours"),
    [
        # We fire once for all times in the gap; cronsim skips minutes with a star.
        ("*/15 2 * * *", datetime(2027, 3, 27, 12), ["03:00+0200"], []),
        # In a repeated hour we fire twice if every hour is meant; cronsim only if there is a star.
        ("30 */2 * * *", datetime(2027, 10, 31, 1), ["02:30+0200"], ["02:30+0200", "02:30+0100"]),
    ],
)
def test_clock_changes_that_cronsim_resolves_otherwise(expression, after, our_hours, their_hours):
    zone = ZoneInfo("Europe/Berlin")
    until = after.replace(tzinfo=zone) + timedelta(hours=17)
    timing = Timing(cadence=Cron(expression), zone="Europe/Berlin")
    hours = set(our_hours + their_hours)
    found, moment = [], after.replace(tzinfo=zone)
    while (moment := next_due(timing, moment)) <= until.astimezone(UTC):
        found.append(f"{moment.astimezone(zone):%H:%M%z}")
    assert [time for time in found if time in hours] == our_hours
    simulated = takewhile(
        lambda time: time <= until, CronSim(expression, after.replace(tzinfo=zone))
    )
    simulated = [f"{time:%H:%M%z}" for time in simulated]
    assert [time for time in simulated if time in hours] == their_hours


special_days = st.sampled_from(["L", "1,L", "15W", "31W", "1W", "*/9", "10-3", "28-2/2", "1-L"])
special_weekdays = st.sampled_from(
    ["5#3", "mon#1,wed#2", "L0", "L5,2#2", "5-1", "sat-mon/2", "*/4"]
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.tuples(special_days, st.just("*"))
    | st.tuples(st.just("*"), special_weekdays)
    | st.tuples(st.sampled_from(["L", "1,L", "*/9", "10-3"]), st.sampled_from(["5-1", "*/4", "2"])),
    starred(0, 59),
    starred(0, 23),
    walls,
)
def test_our_search_equals_croniters(days, minute, hour, wall):
    # No month-day beside a # or W: croniter ignores one of the two.
    expression = f"{minute} {hour} {days[0]} * {days[1]}"
    try:
        cron.check(expression)
    except cron.InvalidCron:
        assume(False)
    either = not any(field.startswith("*") for field in days)
    search = croniter(expression, wall.replace(microsecond=0), day_or=either)
    assert ours(expression, wall, 8) == [search.get_next(datetime) for _ in range(8)]


@pytest.mark.parametrize("expression", ["0 0 13 * 5#2", "0 0 15W * 3"])
def test_croniter_still_forgets_half_of_an_expression(expression):
    # If this fails, `cron` may use croniter's search again, if it is fast enough.
    search = croniter(expression, datetime(2027, 1, 1))
    assert ours(expression, datetime(2027, 1, 1), 9) != [
        search.get_next(datetime) for _ in range(9)
    ]


def counted_days(cadence, year):
    """Return the days of a year on which a cadence fires, by counting through the calendar."""
    days = [date(year, 1, 1) + timedelta(days=n) for n in range(365 + calendar.isleap(year))]
    match cadence:
        case Daily(_, every, anchor):
            counted, day = set(), anchor
            while day.year <= year:
                counted.add(day)
                day += timedelta(days=every)
            return [day for day in days if day in counted]
        case Weekly(names, _, every, anchor):
            monday = anchor
            while monday.weekday() != 0:
                monday -= timedelta(days=1)
            counted = set()
            while monday.year <= year:
                counted |= {monday + timedelta(days=WEEKDAYS.index(name)) for name in names}
                monday += timedelta(weeks=every)
            return [day for day in days if day in counted]
        case Monthly(numbers, _):
            tomorrow = timedelta(days=1)
            return [
                day
                for day in days
                if day.day in numbers or ("last" in numbers and (day + tomorrow).day == 1)
            ]
        case MonthlyDow(weeks, names, _):
            return sorted(
                {
                    date(
                        year,
                        month,
                        column[
                            ("first", "second", "third", "fourth", "last").index(week)
                            if week != "last"
                            else -1
                        ],
                    )
                    for month in range(1, 13)
                    for name in names
                    for column in [
                        [
                            row[WEEKDAYS.index(name)]
                            for row in calendar.monthcalendar(year, month)
                            if row[WEEKDAYS.index(name)]
                        ]
                    ]
                    for week in weeks
                }
            )


def counted_walls(cadence, year):
    """Return the wall-clock fire times of a year, by counting or by cronsim."""
    begin, end = datetime(year, 1, 1), datetime(year + 1, 1, 1)
    match cadence:
        case Cron(expression):
            simulation = CronSim(expression, begin - timedelta(seconds=1))
            return list(takewhile(lambda wall: wall < end, simulation))
        case Every(seconds):
            days = (begin + timedelta(days=n) for n in range((end - begin).days))
            return [
                day + timedelta(seconds=second)
                for day in days
                for second in range(0, 86_400, seconds)
            ]
    clock = time.fromisoformat(cadence.time)
    return [datetime.combine(day, clock) for day in counted_days(cadence, year)]


names = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=3, unique=True).map(tuple)
clocks = st.sampled_from(["00:00", "02:30", "23:59"])
anchors = st.dates(date(2019, 1, 1), date(2020, 12, 31))
weeks = st.sampled_from(["first", "second", "third", "fourth", "last"])
month_days = st.integers(1, 31) | st.just("last")
dated = st.one_of(
    st.builds(Daily, clocks, st.integers(1, 40), anchors),
    st.builds(Weekly, names, clocks, st.integers(1, 9), anchors),
    st.builds(Monthly, st.lists(month_days, min_size=1, max_size=4).map(tuple), clocks),
    st.builds(MonthlyDow, st.lists(weeks, min_size=1, max_size=3).map(tuple), names, clocks),
    st.builds(Every, st.integers(3600, 86_400)),
)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(dated, st.integers(2022, 2030))
def test_cadences_fire_as_counted(cadence, year):
    found, wall = [], datetime(year, 1, 1) - timedelta(seconds=1)
    while (wall := next_wall(cadence, wall)).year == year:
        found.append(wall)
    assert found == counted_walls(cadence, year)


def resolved(walls, zone, *, in_both_passings):
    """Convert wall-clock times to instants one by one, by Python's rules and ours."""
    instants = set()
    for wall in walls:
        first = wall.replace(tzinfo=zone).astimezone(UTC)
        second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
        if first == second:
            instants.add(first)
        elif first < second:
            instants |= {first, second} if in_both_passings else {first}
        else:
            later = wall
            while (
                later.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None)
                != later
            ):
                later += timedelta(minutes=1)
                later = later.replace(second=0)
            instants.add(later.replace(tzinfo=zone).astimezone(UTC))
    return instants


# A cadence, its filters, the same filters as a function, and whether it fires in every hour.
MIXED = [
    (Every(900), Filters(), lambda wall: True, True),
    (Every(900), Filters(between="22:00-02:30"), lambda wall: wall.hour >= 22 or wall.hour < 2 or (wall.hour == 2 and wall.minute < 30), True),
    (Every(3 * 3600), Filters(), lambda wall: True, False),
    (Cron("*/20 8-17 * * 1-5"), Filters(months=(3, 10)), lambda wall: wall.month in (3, 10), False),
    (Cron("30 * * * *"), Filters(weeks=("last",)), lambda wall: (wall + timedelta(days=7)).month != wall.month, True),
    (Cron("15,45 2 * * *"), Filters(), lambda wall: True, False),
    (Daily("02:10", every=3), Filters(), lambda wall: True, False),
    (Weekly(("sun", "wed"), "02:30", every=2), Filters(days=("sun",)), lambda wall: wall.weekday() == 6, False),
    (Monthly((1, 31, "last"), "00:00"), Filters(start="2000-03-01"), lambda wall: True, False),
    (MonthlyDow(("first", "last"), ("sun",), "01:45"), Filters(), lambda wall: True, False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("year", "zones"),
    [
        pytest.param(
            2027,
            ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu"],
            id="fifty-manifests",
        ),
        pytest.param(2011, ["Pacific/Apia"], id="a-day-that-never-was"),
        pytest.param(2018, ["America/Sao_Paulo"], id="a-gap-at-midnight"),
        pytest.param(2027, ["Europe/Dublin"], id="negative-daylight-saving"),
    ],
)  # fmt: skip
def test_a_year_of_fifty_manifests(year, zones):
    for cadence, filters, passes, in_both_passings in MIXED:
        walls = [wall for wall in counted_walls(cadence, year) if passes(wall)]
        for name in zones:
            zone = ZoneInfo(name)
            begin, end = (
                datetime(number, 1, 1, tzinfo=zone).astimezone(UTC) for number in (year, year + 1)
            )
            expected = resolved(walls, zone, in_both_passings=in_both_passings)
            timing = Timing(cadence=cadence, zone=name, filters=filters)
            found, moment = [], begin - timedelta(seconds=1)
            while (moment := next_due(timing, moment)) is not None and moment < end:
                found.append(moment)
            assert found == sorted(expected), (cadence, name)
