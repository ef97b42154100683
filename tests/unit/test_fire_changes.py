"""Which fire times come, go and move: exact however dense they are, and bounded."""

from datetime import UTC, date, datetime, timedelta

import pytest
from headway_contract.scheduling import FireChange, FireMove
from headway_decisions.firing import jitter
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import (
    Cadence,
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    Once,
    Weekly,
)
from headway_decisions.timing.calendar import ExcludedDates, ExcludedDays, Filters
from headway_decisions.timing.timing import Timing
from headway_scheduler.declare import fire_changes
from headway_scheduler.declare.fire_changes import Firing, Move, changes
from hypothesis import given, settings
from hypothesis import strategies as st

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECONDLY = Timing(cadence=Every(1))
MINUTELY = Timing(cadence=Every(60))
WEEK = NOW + timedelta(days=7)
IN_THREE_DAYS = ExcludedDates((date(2026, 6, 4),))


def firing(timing: Timing, first: datetime | None = None, jitter: float = 0.0) -> Firing:
    first = first or timings.next_due(timing, NOW)
    return Firing(timing=timing, jitter_seconds=jitter, first=first)


def move(before: Firing | None, after: Firing | None, number: int = 1) -> Move:
    return Move(external_id=f"m{number}", before=before, after=after, now=NOW)


def the_change(before: Timing, after: Timing, until: datetime = WEEK) -> FireChange:
    [change], left_out = changes([move(firing(before), firing(after))], until)
    assert left_out is None
    return change


def moved(before: Cadence, after: Cadence, until: datetime = WEEK) -> list[str]:
    """What moves, as 'day hour → day hour'."""
    change = the_change(Timing(cadence=before), Timing(cadence=after), until)
    assert change.moving == len(change.moves)
    return [f"{one.vanish:%d %H:%M} → {one.appear:%d %H:%M}" for one in change.moves]


def test_a_time_of_a_paused_manifest_that_is_long_past_does_not_count():
    long_ago = firing(SECONDLY, NOW - timedelta(days=300))
    [change], _ = changes([move(long_ago, None)], NOW + timedelta(seconds=3))
    assert [one.due_at for one in change.vanish] == [
        NOW + timedelta(seconds=second) for second in (1, 2, 3)
    ]


def test_manifests_whose_times_stay_are_left_out():
    daily = firing(Timing(cadence=Daily("03:15")), NOW + timedelta(hours=3, minutes=15))
    assert changes([move(daily, daily), move(None, None)], WEEK) == ([], None)
    manual = Firing(timing=Timing(cadence=Manual()), jitter_seconds=0, first=None)
    assert changes([move(None, manual)], WEEK) == ([], None)


def test_a_difference_behind_thousands_of_unchanged_times_is_seen():
    change = the_change(MINUTELY, Timing(cadence=Every(60), exclusions=(IN_THREE_DAYS,)))
    assert (change.appearing, change.vanishing, change.unchanged) == (0, 1440, 7 * 1440 - 1440)
    assert change.vanish[0].due_at == datetime(2026, 6, 4, tzinfo=UTC)
    assert change.vanish[0].excluded == "on 2026-06-04"
    assert (len(change.vanish), change.truncated) == (fire_changes.MOST_OF_A_MANIFEST, True)
    assert change.compared_until is None


@pytest.mark.parametrize(
    ("after", "days", "vanishing"),
    [
        (Timing(cadence=Every(1), exclusions=(IN_THREE_DAYS,)), 7, 86_400),
        (Timing(cadence=Every(1), filters=Filters(end="2026-06-05")), 7, 2 * 86_400 + 1),
        (Timing(cadence=Cron("* * * * * 1-6")), 7, 86_400),
    ],
)
def test_even_every_second_of_a_week_is_compared(after, days, vanishing):
    change = the_change(SECONDLY, after, NOW + timedelta(days=days))
    assert (change.appearing, change.vanishing, change.compared_until) == (0, vanishing, None)
    assert change.unchanged == days * 86_400 - vanishing


def test_the_last_day_of_ten_years_is_seen():
    until = NOW + timedelta(days=3660)
    last = ExcludedDates((until.date() - timedelta(days=1),))
    change = the_change(MINUTELY, Timing(cadence=Every(60), exclusions=(last,)), until)
    assert (change.vanishing, change.unchanged) == (1440, 3659 * 1440)


def test_equal_times_of_two_zones_are_the_same_but_where_the_days_differ():
    berlin = Timing(cadence=Every(60), zone="Europe/Berlin")
    assert changes([move(firing(MINUTELY), firing(berlin))], WEEK) == ([], None)
    shut = Timing(cadence=Every(60), zone="Europe/Berlin", exclusions=(IN_THREE_DAYS,))
    change = the_change(MINUTELY, shut)
    assert change.vanishing == 1440
    assert change.vanish[0].due_at == datetime(2026, 6, 3, 22, tzinfo=UTC)


def test_what_no_patience_was_left_for_is_said(monkeypatch):
    monkeypatch.setattr(fire_changes, "_MOST_STEPS_OF_ONE", 20_000)
    after = Timing(cadence=Every(1), exclusions=(IN_THREE_DAYS,))
    change = the_change(SECONDLY, after)
    assert change.compared_until == datetime(2026, 6, 1, 23, 59, 59, tzinfo=UTC)
    assert (change.truncated, change.vanishing, change.unchanged) == (True, 0, 86_399)
    monkeypatch.setattr(fire_changes, "_MOST_STEPS", 20_000)
    others = [move(firing(Timing(cadence=Every(n))), None, n) for n in (7, 8, 9)]
    told, left_out = changes([move(firing(SECONDLY), firing(after)), *others], WEEK)
    assert len(told) == 1
    assert left_out is not None
    assert (left_out.not_compared, left_out.changing) == (3, 0)


def test_dense_times_are_counted_and_the_first_are_listed():
    [gone], _ = changes([move(firing(SECONDLY), None)], NOW + timedelta(days=3660))
    assert (len(gone.vanish), gone.truncated) == (fire_changes.MOST_OF_A_MANIFEST, True)
    assert gone.vanishing == 3660 * 86_400
    [changed], _ = changes([move(firing(MINUTELY), firing(Timing(cadence=Every(120))))], WEEK)
    assert (changed.vanishing, changed.unchanged) == (5040, 5040)


def test_all_manifests_are_compared_and_what_does_not_fit_is_counted():
    moves = [move(firing(SECONDLY), None, number) for number in range(1, 2500)]
    moves.append(move(None, firing(Timing(cadence=Daily("04:00"))), 2500))
    told, left_out = changes(moves, WEEK)
    assert len(told) == fire_changes.MOST_MANIFESTS
    assert all(one.vanish for one in told), "each has something to show"
    assert sum(len(one.vanish) for one in told) <= fire_changes.MOST_LISTED
    unlisted = 2499 - fire_changes.MOST_MANIFESTS
    assert left_out is not None
    assert (left_out.changing, left_out.not_compared) == (unlisted + 1, 0)
    assert (left_out.appearing, left_out.vanishing) == (7, unlisted * 7 * 86_400)


def test_few_dense_ones_leave_room_for_all_times_of_the_others():
    moves = [move(firing(SECONDLY), None, number) for number in range(1, 20)]
    moves.append(move(None, firing(Timing(cadence=Every(1800))), 20))
    told, _ = changes(moves, NOW + timedelta(days=1))
    assert (len(told[-1].appear), told[-1].truncated) == (48, False)
    assert {len(one.vanish) for one in told[:-1]} == {102}


def test_another_time_of_the_same_day_is_a_move():
    assert moved(Daily("02:00"), Daily("04:00"), NOW + timedelta(days=2)) == [
        "01 02:00 → 01 04:00",
        "02 02:00 → 02 04:00",
    ]
    one_day = NOW + timedelta(days=1)
    assert moved(Cron("0 9,17 * * *"), Cron("30 9,17 * * *"), one_day) == [
        "01 09:00 → 01 09:30",
        "01 17:00 → 01 17:30",
    ]


def test_what_would_move_from_a_time_that_is_over_or_to_one_behind_the_end_does_not():
    """In the middle between the two, today's new one comes on top, and the last old one vanishes."""
    now = NOW + timedelta(hours=3)
    firings = [
        Firing(timing=timing, jitter_seconds=0.0, first=timings.next_due(timing, now))
        for timing in (Timing(cadence=Daily("02:00")), Timing(cadence=Daily("04:00")))
    ]
    one = Move(external_id="m", before=firings[0], after=firings[1], now=now)
    [change], _ = changes([one], now + timedelta(days=3))
    assert (change.vanishing, change.appearing, change.moving) == (3, 3, 2)
    assert [f"{one.vanish:%d %H} → {one.appear:%d %H}" for one in change.moves] == [
        "02 02 → 02 04",
        "03 02 → 03 04",
    ]


def test_one_that_becomes_two_moves_to_the_nearer():
    assert moved(Daily("09:00"), Cron("0 10,18 * * *"), NOW + timedelta(days=1)) == [
        "01 09:00 → 01 10:00"
    ]


def test_another_day_of_the_same_week_or_month_is_a_move():
    weeks = NOW + timedelta(days=14)
    assert moved(Weekly(("mon",), "09:00"), Weekly(("tue",), "09:00"), weeks) == [
        "01 09:00 → 02 09:00",
        "08 09:00 → 09 09:00",
    ]
    months = NOW + timedelta(days=50)
    assert moved(Monthly((3,), "09:00"), Monthly((25,), "08:00"), months) == [
        "03 09:00 → 25 08:00",
    ]
    assert moved(Once("2026-06-02 09:00"), Once("2026-07-19 10:00"), months) == [
        "02 09:00 → 19 10:00"
    ]


def test_what_nobody_would_call_a_move_is_none():
    assert moved(Every(300), Every(420)) == []
    assert moved(Weekly(("mon",), "09:00"), Weekly(("mon", "wed", "fri"), "09:00")) == []
    no_sunday = Timing(cadence=Every(60), exclusions=(ExcludedDays(("sun",)),))
    assert the_change(MINUTELY, no_sunday).moving == 0


def test_a_time_that_another_jitter_lets_go_at_another_time_moves():
    daily = Timing(cadence=Daily("03:15"))
    [change], _ = changes([move(firing(daily), firing(daily, jitter=7200))], WEEK)
    assert (change.moving, change.appearing, change.vanishing, change.unchanged) == (7, 7, 7, 0)
    first = NOW + timedelta(hours=3, minutes=15)
    assert change.moves[0] == FireMove(vanish=first, appear=first)
    assert change.vanish[0].fire_at < change.appear[0].fire_at
    same = changes([move(firing(daily, jitter=60), firing(daily, jitter=60))], WEEK)
    assert same == ([], None)


def test_the_same_jitter_that_another_step_shortens_moves_times_too():
    hourly, faster = Timing(cadence=Every(3600)), Timing(cadence=Every(900))
    [change], _ = changes(
        [move(firing(hourly, jitter=3000), firing(faster, jitter=3000))], NOW + timedelta(days=1)
    )
    assert (change.vanishing + change.unchanged, change.appearing + change.unchanged) == (24, 96)
    assert change.vanishing > 12


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


def walked(external_id: str, one: Firing, now: datetime, until: datetime) -> set:
    found, at = set(), timings.next_allowed(one.timing, now)
    while at is not None and at <= until:
        found.add((at, jitter.fire_at(one.timing, external_id, at, one.jitter_seconds)))
        at = timings.next_allowed(one.timing, at)
    return found


@settings(max_examples=100)
@given(TIMINGS, TIMINGS, MOMENTS, st.sampled_from([(0, 0), (0, 90), (2000, 2000)]))
def test_differences_are_those_of_a_walk(before, after, now, jitters):
    until = now + timedelta(days=6)
    old, new = (
        Firing(timing=timing, jitter_seconds=seconds, first=timings.next_due(timing, now))
        for timing, seconds in zip((before, after), jitters, strict=True)
    )
    one = Move(external_id="m", before=old, after=new, now=now)
    gone, come = (walked(one.external_id, side, now, until) for side in (old, new))
    told, left_out = changes([one], until)
    assert left_out is None
    if gone == come:
        assert told == []
        return
    [change] = told
    assert (change.vanishing, change.appearing) == (len(gone - come), len(come - gone))
    assert change.unchanged == len(gone & come)
    assert change.truncated == (change.vanishing + change.appearing > 200)
    if not change.truncated:
        assert [one.due_at for one in change.vanish] == sorted(at for at, _ in gone - come)
        assert [one.due_at for one in change.appear] == sorted(at for at, _ in come - gone)
    assert len({one.vanish for one in change.moves}) == len(change.moves)
    assert len({one.appear for one in change.moves}) == len(change.moves)
    assert change.moving <= min(change.vanishing, change.appearing)
