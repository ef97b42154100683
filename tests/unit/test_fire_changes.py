"""Fire times that appear and disappear when manifests change: exact and bounded."""

from datetime import UTC, date, datetime, timedelta

from headway_contract.definitions import FireChange
from headway_decisions.firing import jitter
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import Cron, Daily, Every, Manual, Once
from headway_decisions.timing.calendar import ExcludedDates, ExcludedDays, Filters
from headway_decisions.timing.timing import Timing
from headway_scheduler.declare import fire_changes
from headway_scheduler.declare.fire_changes import MOST_COMPARED, Firing, Move, changes
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECONDLY = Timing(cadence=Every(1))
HOURLY = Timing(cadence=Every(3600))
WEEK = NOW + timedelta(days=7)
IN_THREE_DAYS = ExcludedDates((date(2026, 6, 4),))


def firing(timing: Timing, first: datetime | None = None, jitter: float = 0.0) -> Firing:
    first = first or timings.next_due(timing, NOW)
    return Firing(timing=timing, jitter_seconds=jitter, first=first)


def move(before: Firing | None, after: Firing | None, number: int = 1) -> Move:
    return Move(external_id=f"m{number}", before=before, after=after, now=NOW)


def the_change(before: Firing | None, after: Firing | None, until: datetime = WEEK) -> FireChange:
    [change], left_out = changes([move(before, after)], until)
    assert left_out is None
    return change


def test_a_past_time_of_a_paused_manifest_does_not_count():
    long_ago = firing(SECONDLY, NOW - timedelta(days=300))
    change = the_change(long_ago, None, NOW + timedelta(seconds=3))
    assert [fire.due_at for fire in change.vanish] == [
        NOW + timedelta(seconds=second) for second in (1, 2, 3)
    ]


def test_a_late_one_shot_still_counts():
    past = NOW - timedelta(hours=1)
    change = the_change(firing(Timing(cadence=Once("2026-05-31 23:00")), past), None)
    assert [fire.due_at for fire in change.vanish] == [past]


def test_manifests_whose_times_stay_are_left_out():
    daily = firing(Timing(cadence=Daily("03:15")))
    manual = Firing(timing=Timing(cadence=Manual()), jitter_seconds=0, first=None)
    moves = [move(daily, daily), move(None, None), move(None, manual)]
    assert changes(moves, WEEK) == ([], None)


def test_a_new_exclusion_is_named():
    change = the_change(
        firing(HOURLY), firing(Timing(cadence=Every(3600), exclusions=(IN_THREE_DAYS,)))
    )
    assert (change.appearing, change.vanishing, change.unchanged) == (0, 24, 6 * 24)
    assert change.vanish[0].due_at == datetime(2026, 6, 4, tzinfo=UTC)
    assert change.vanish[0].excluded == "on 2026-06-04"
    assert change.compared_until is None


def test_equal_times_of_two_zones_are_the_same():
    berlin = Timing(cadence=Every(3600), zone="Europe/Berlin")
    assert changes([move(firing(HOURLY), firing(berlin))], WEEK) == ([], None)


def test_dense_times_are_compared_as_far_as_both_sides_reach():
    change = the_change(firing(SECONDLY), firing(Timing(cadence=Every(2))))
    end = NOW + timedelta(seconds=MOST_COMPARED)
    assert (change.compared_until, change.vanishing) == (end, MOST_COMPARED // 2)
    assert change.unchanged == MOST_COMPARED // 2
    shut = Timing(cadence=Every(1), exclusions=(IN_THREE_DAYS,))
    unseen = the_change(firing(SECONDLY), firing(shut))
    assert (unseen.vanishing, unseen.compared_until) == (0, end), (
        "the answer does not say unchanged"
    )


def test_an_answer_is_bounded_and_counts_omitted_fires(monkeypatch):
    moves = [move(firing(HOURLY), None, number) for number in range(1, 2500)]
    moves.append(move(None, firing(Timing(cadence=Daily("04:00"))), 2500))
    listed, left_out = changes(moves, WEEK)
    assert len(listed) == fire_changes.MOST_MANIFESTS
    assert all(change.vanish for change in listed), "each has something to show"
    assert sum(len(change.vanish) for change in listed) <= fire_changes.MOST_LISTED
    unlisted = 2499 - fire_changes.MOST_MANIFESTS
    assert left_out is not None
    assert (left_out.changing, left_out.not_compared) == (unlisted + 1, 0)
    assert (left_out.appearing, left_out.vanishing) == (7, unlisted * 7 * 24)
    monkeypatch.setattr(fire_changes, "MOST_COMPUTED", 100)
    others = [move(firing(Timing(cadence=Every(n))), None, n) for n in (7, 8, 9)]
    listed, left_out = changes(others, WEEK)
    assert len(listed) == 1
    assert left_out is not None
    assert (left_out.not_compared, left_out.changing) == (2, 0)


def test_another_jitter_changes_the_time_at_which_a_due_time_fires():
    daily = Timing(cadence=Daily("03:15"))
    change = the_change(firing(daily), firing(daily, jitter=7200))
    assert (change.appearing, change.vanishing, change.unchanged) == (7, 7, 0)
    assert change.vanish[0].due_at == change.appear[0].due_at
    assert change.vanish[0].fire_at < change.appear[0].fire_at
    same = changes([move(firing(daily, jitter=60), firing(daily, jitter=60))], WEEK)
    assert same == ([], None)


TIMINGS = st.builds(
    Timing,
    cadence=st.sampled_from(
        [Every(1800), Every(5400), Daily("02:30"), Daily("12:00", 2), Cron("*/40 1-5 * * 1-6")]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"]),
    filters=st.builds(
        Filters,
        days=st.sampled_from([(), ("mon", "sat", "sun")]),
        between=st.sampled_from([None, "22:00-03:00"]),
        end=st.sampled_from([None, "2026-10-26", "2026-10-27 01:10"]),
    ),
    exclusions=st.sampled_from(
        [(), (ExcludedDays(("sun",)),), (ExcludedDates((date(2026, 10, 26),)),)]
    ),
)
# The clocks of Berlin go back on 25 October, those of Lord Howe Island went forward on the 4th.
MOMENTS = st.sampled_from([datetime(2026, 10, day, 11, 7, 3, 250, tzinfo=UTC) for day in (1, 22)])


def walked(firing: Firing, now: datetime, until: datetime) -> set:
    found, at = set(), timings.next_allowed(firing.timing, now)
    while at is not None and at <= until:
        found.add((at, jitter.fire_at(firing.timing, "m", at, firing.jitter_seconds)))
        at = timings.next_allowed(firing.timing, at)
    return found


@settings(max_examples=100)
@given(TIMINGS, TIMINGS, MOMENTS, st.sampled_from([(0, 0), (0, 90), (2000, 2000)]))
def test_the_change_is_the_difference_of_two_walks(before, after, now, jitters):
    until = now + timedelta(days=6)
    old, new = (
        Firing(timing=timing, jitter_seconds=seconds, first=timings.next_due(timing, now))
        for timing, seconds in zip((before, after), jitters, strict=True)
    )
    gone, come = (walked(side, now, until) for side in (old, new))
    found, left_out = changes([Move(external_id="m", before=old, after=new, now=now)], until)
    assert left_out is None
    if gone == come:
        assert found == []
        return
    [change] = found
    assert (change.vanishing, change.appearing) == (len(gone - come), len(come - gone))
    assert (change.unchanged, change.compared_until) == (len(gone & come), None)
    first = sorted([(at, 0) for at, _ in gone - come] + [(at, 1) for at, _ in come - gone])[:100]
    assert [fire.due_at for fire in change.vanish] == [at for at, comes in first if not comes]
    assert [fire.due_at for fire in change.appear] == [at for at, comes in first if comes]
