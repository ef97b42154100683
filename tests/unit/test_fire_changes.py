"""Which fire times come and go, bounded however dense they are."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from headway_decisions.cadence import Daily, Every, Manual
from headway_decisions.timing import Timing
from headway_scheduler import fire_changes
from headway_scheduler.fire_changes import Firing, Move, changes

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECONDLY = Timing(cadence=Every(1))


def firing(timing: Timing, first: datetime | None = None, jitter: float = 0.0) -> Firing:
    return Firing(timing=timing, jitter_seconds=jitter, first=first or NOW + timedelta(seconds=1))


def move(before: Firing | None, after: Firing | None, number: int = 1) -> Move:
    return Move(
        manifest=UUID(int=number), external_id=f"m{number}", before=before, after=after, now=NOW
    )


def test_a_time_of_a_paused_manifest_that_is_long_past_does_not_count():
    long_ago = firing(SECONDLY, NOW - timedelta(days=300))
    [change] = changes([move(long_ago, None)], NOW + timedelta(seconds=3))
    assert [one.due_at for one in change.vanish] == [
        NOW + timedelta(seconds=second) for second in (1, 2, 3)
    ]


def test_manifests_whose_times_stay_are_left_out():
    daily = firing(Timing(cadence=Daily("03:15")), NOW + timedelta(hours=3, minutes=15))
    assert changes([move(daily, daily), move(None, None)], NOW + timedelta(days=7)) == []
    manual = Firing(timing=Timing(cadence=Manual()), jitter_seconds=0, first=None)
    assert changes([move(None, manual)], NOW + timedelta(days=7)) == []


def test_dense_times_are_walked_only_as_far_as_they_are_told():
    [gone] = changes([move(firing(SECONDLY), None)], NOW + timedelta(days=3660))
    assert (len(gone.vanish), gone.truncated) == (fire_changes.MOST_OF_A_MANIFEST, True)
    faster = firing(Timing(cadence=Every(2)), NOW + timedelta(seconds=2))
    [changed] = changes([move(firing(SECONDLY), faster)], NOW + timedelta(days=3660))
    assert changed.truncated
    assert changed.unchanged > 0


def test_all_manifests_together_fit_into_a_message():
    moves = [move(firing(SECONDLY), None, number) for number in range(1, 2500)]
    told = changes(moves, NOW + timedelta(days=7))
    assert len(told) == fire_changes.MOST_MANIFESTS
    assert sum(len(one.vanish) for one in told) == fire_changes.MOST_LISTED
