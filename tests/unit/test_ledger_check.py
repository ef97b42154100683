"""Comparison of the ledger with the expected fire times."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_decisions.firing import jitter
from headway_decisions.firing.manifest_state import ManifestView, Misfire
from headway_decisions.timing.cadence import Daily, Every, Manual, Once, Spaced
from headway_decisions.timing.calendar import ExcludedDates
from headway_decisions.timing.timing import Timing
from headway_scheduler.explain import ledger_check
from headway_scheduler.explain.ledger_check import (
    NOT_DUE,
    OVERDUE,
    TWICE,
    UNDECIDED,
    Version,
)

HOURLY = Timing(cadence=Every(3600))
SECONDLY = Timing(cadence=Every(1))
START = datetime(2026, 6, 1, tzinfo=UTC)
NOW = START + timedelta(hours=6, minutes=30)


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


def at(*hours: float) -> list[ledger_check.Decided]:
    return [ledger_check.Decided(hour(number), hour(number)) for number in hours]


def stretch(first: float, last: float) -> ledger_check.Decided:
    return ledger_check.Decided(hour(first), hour(last))


SEVEN = hour(7)


def check(
    decided,
    *,
    versions=None,
    next_due_at=SEVEN,
    jitter_seconds=0.0,
    threshold_seconds=60.0,
    **options,
):
    versions = versions or [Version(START, HOURLY)]
    view = ManifestView(
        id=UUID(int=1),
        external_id="m",
        timing=versions[-1].timing,
        next_due_at=next_due_at,
        jitter_seconds=jitter_seconds,
        misfire=Misfire(threshold_seconds=threshold_seconds),
    )
    return ledger_check.check(view, versions, decided, **{"since": START, "now": NOW, **options})


def findings(checked) -> list[tuple[float, float, str]]:
    return [
        (
            (gap.first - START) / timedelta(hours=1),
            (gap.last - START) / timedelta(hours=1),
            gap.trouble,
        )
        for gap in checked.gaps
    ]


def test_every_time_once_is_in_order():
    checked = check(at(1, 2, 3, 4, 5, 6))
    assert (checked.fire_times, checked.gaps, checked.until) == (6, [], None)
    assert findings(check([*at(1), stretch(2, 5), *at(6)])) == []


def test_times_that_miss_a_decision_and_follow_each_other_are_one_gap():
    assert findings(check(at(1, 4, 6))) == [(2, 3, UNDECIDED), (5, 5, UNDECIDED)]
    assert findings(check([])) == [(1, 6, UNDECIDED)]


def test_a_time_decided_twice_and_a_decision_without_a_time():
    assert findings(check([*at(1, 2, 3, 5, 6), stretch(3, 4)])) == [(3, 3, TWICE)]
    assert findings(check(at(1, 2, 2.5, 3, 4, 5, 6))) == [(2.5, 2.5, NOT_DUE)]


def test_each_timing_counts_from_just_after_its_start_to_that_of_the_next():
    half = Timing(cadence=Daily("04:30"))
    versions = [Version(START, HOURLY), Version(hour(3), half), Version(hour(5.5), HOURLY)]
    assert findings(check(at(1, 2, 3, 4.5, 6), versions=versions)) == []
    assert findings(check(at(1, 2, 4.5, 6), versions=versions)) == [(3, 3, UNDECIDED)]
    assert findings(check(at(1, 2, 3, 4, 4.5, 6), versions=versions)) == [(4, 4, NOT_DUE)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"paused": True}, []),
        ({"paused": False}, [(4, 6, OVERDUE)]),
    ],
)
def test_an_undecided_time_is_a_gap_only_if_nothing_holds_it(facts, expected):
    assert findings(check(at(1, 2, 3), next_due_at=hour(4), **facts)) == expected


def test_a_time_delayed_by_jitter_is_no_gap_until_its_fire_time():
    let_go_at = jitter.fire_at(HOURLY, "m", hour(6), 3000)
    assert let_go_at > hour(6)
    for now, gaps in ((let_go_at, []), (let_go_at + timedelta(minutes=5), [(6, 6, OVERDUE)])):
        held = check(at(1, 2, 3, 4, 5), next_due_at=hour(6), now=now, jitter_seconds=3000.0)
        assert findings(held) == gaps


def test_a_time_that_has_just_come_due_may_wait_a_moment():
    just = hour(6) + timedelta(seconds=3)
    assert findings(check(at(1, 2, 3, 4, 5), next_due_at=hour(6), now=just)) == []
    late = hour(6) + timedelta(seconds=30)
    assert findings(check(at(1, 2, 3, 4, 5), next_due_at=hour(6), now=late)) == [(6, 6, OVERDUE)]


def test_excluded_times_wait_for_the_next_that_is_allowed():
    closed = Timing(cadence=Every(3600), exclusions=(ExcludedDates(dates=(START.date(),)),))
    assert findings(check([], versions=[Version(START, closed)], next_due_at=hour(1))) == []


def test_cadences_without_times_of_their_own_are_exempt():
    assert (
        findings(check(at(1.1, 2.7), versions=[Version(START, Timing(cadence=Spaced(600.0)))]))
        == []
    )
    manual = [Version(START, Timing(cadence=Manual()))]
    assert findings(check([], versions=manual, next_due_at=None)) == []


def test_a_change_to_spaced_may_be_due_at_once_but_not_before():
    versions = [Version(START, HOURLY), Version(hour(2.5), Timing(cadence=Spaced(600.0)))]
    assert findings(check(at(1, 2, 2.5), versions=versions)) == []
    assert findings(check(at(1, 2, 2.4), versions=versions)) == [(2.4, 2.4, NOT_DUE)]


def test_a_one_shot_may_be_declared_a_little_late():
    once = [Version(hour(1) + timedelta(seconds=20), Timing(cadence=Once("2026-06-01 01:00")))]
    assert findings(check(at(1), versions=once, next_due_at=None)) == []
    assert findings(check([], versions=once, next_due_at=None)) == [(1, 1, UNDECIDED)]


def test_a_one_shot_that_was_given_up_because_its_time_was_long_past():
    once = Timing(cadence=Once("2026-06-01 01:00"))
    versions = [Version(START, Timing(cadence=Manual())), Version(hour(5), once)]
    assert findings(check(at(1), versions=versions, next_due_at=None)) == []


def test_nor_does_it_count_as_a_second_decision_where_another_timing_had_times():
    once = Timing(cadence=Once("2026-06-01 02:30"))
    versions = [Version(START, HOURLY), Version(hour(5.5), once)]
    decided = [stretch(1, 5), *at(2.5)]
    assert findings(check(decided, versions=versions, next_due_at=None)) == []
    assert findings(check([*decided, *at(3)], versions=versions, next_due_at=None)) == [
        (3, 3, TWICE)
    ]


def test_only_the_requested_period_is_checked():
    assert findings(check(at(5, 6), since=hour(4.5))) == []
    assert findings(check([stretch(2, 5), *at(6)], since=hour(4.5))) == []


def test_a_long_stretch_of_a_dense_cadence_is_stepped_over():
    month = START + timedelta(days=30)
    decided = [ledger_check.Decided(START + timedelta(seconds=1), month)]
    checked = check(
        decided, versions=[Version(START, SECONDLY)], next_due_at=None, now=month, most=10
    )
    assert (checked.fire_times, checked.gaps, checked.until) == (1, [], None)


def test_too_many_times_are_left_out_and_reported():
    checked = check(at(1, 2, 3), most=2)
    assert (checked.fire_times, checked.until) == (2, hour(3))
