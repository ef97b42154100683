"""Problems of a timing are returned as lines, never raised."""

from datetime import UTC, date, datetime

import msgspec
import pytest
from headway_decisions.timing import timing as timings
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
        (Timing(cadence=Every(60), zone=None), "time zone None is not valid"),
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
            "1 minute after its last work has ended never fires: its exclusions",
        ),
    ],
)
def test_one_thing_wrong_is_one_line(timing, complaint):
    found = timings.problems(timing)
    assert len(found) == 1, found
    assert complaint in found[0]
    assert "\n" not in found[0]


DECLARED = datetime(2026, 11, 16, tzinfo=UTC)
LEAP_DAY = Cron("0 0 29 2 *")


@pytest.mark.parametrize(
    ("timing", "complaint"),
    [
        # The last such day was in 2024, the next will be in 2052.
        (of(LEAP_DAY, days=("thu",)), "never fires: its filters allow none of its times"),
        (of(LEAP_DAY, days=("thu",), start="2020-01-01"), "never fires: its filters"),
        (without(ExcludedRange(date(2026, 1, 1), date(2040, 1, 1))), "its exclusions cover all"),
        (
            Timing(
                cadence=Spaced(60), exclusions=(ExcludedRange(date(2026, 1, 1), date(2040, 1, 1)),)
            ),
            "never fires: its exclusions",
        ),
    ],
)
def test_a_timing_without_a_fire_within_ten_years_is_refused(timing, complaint):
    [found] = timings.problems(timing, since=DECLARED)
    assert complaint in found
    assert timings.problems(timing) == [], "who knows no time asks from a fixed one"


@pytest.mark.parametrize(
    "timing",
    [
        of(LEAP_DAY),
        of(LEAP_DAY, days=("tue",)),
        of(LEAP_DAY, days=("thu",), start="2050-01-01"),
        # A period may be over, and so may a one-shot.
        of(Daily("9:00"), end="2024-05-01"),
        of(Daily("9:00"), start="2024-04-01", end="2024-05-01"),
        of(Once("2024-05-01 09:00")),
        of(Manual()),
    ],
)
def test_a_timing_with_a_future_fire_or_in_the_past_is_accepted(timing):
    assert timings.problems(timing, since=DECLARED) == []


def test_all_problems_are_reported_at_once():
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
def test_a_valid_timing_has_no_problems_and_survives_serialization(timing):
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
def test_invalid_values_are_reported_and_never_raise(timing):
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
