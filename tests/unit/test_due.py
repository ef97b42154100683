"""What a tick does with one manifest."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_decisions import due, identity
from headway_decisions.cadence import Every
from headway_decisions.due import Fire, ManifestView, NotDue, Skip, Stretch

MANIFEST = UUID(int=1)
WORK = UUID(int=2)
NOON = datetime(2027, 5, 1, 12, tzinfo=UTC)


def view(**changes) -> ManifestView:
    fields = {"id": MANIFEST, "cadence": Every(60), "zone": "UTC", "next_due_at": NOON}
    return ManifestView(**(fields | changes))


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def test_nothing_before_its_time():
    assert due.judge(view(), now=NOON - timedelta(microseconds=1)) == NotDue(manifest=MANIFEST)


def test_fires_at_its_time_and_moves_on():
    assert due.judge(view(), now=NOON) == Fire(
        manifest=MANIFEST, due_at=NOON, missed=None, next_due_at=NOON + minutes(1)
    )


def test_after_an_outage_it_fires_once_for_the_latest_and_owns_up_to_the_rest():
    assert due.judge(view(), now=NOON + minutes(7.5)) == Fire(
        manifest=MANIFEST,
        due_at=NOON + minutes(7),
        missed=Stretch(NOON, NOON + minutes(6)),
        next_due_at=NOON + minutes(8),
    )


def test_one_missed_occurrence_is_a_stretch_of_one():
    verdict = due.judge(view(), now=NOON + minutes(1))
    assert isinstance(verdict, Fire)
    assert verdict.missed == Stretch(NOON, NOON)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group_enabled": False}, "group_disabled"),
        ({"blocked_by": WORK}, "blocked_by_dead_letter"),
        ({"outstanding": WORK}, "still_outstanding"),
        ({"outstanding": WORK, "blocked_by": WORK, "group_enabled": False}, "group_disabled"),
    ],
)
def test_what_holds_a_manifest_back_is_a_recorded_skip(changes, reason):
    assert due.judge(view(**changes), now=NOON) == Skip(
        manifest=MANIFEST,
        due_at=NOON,
        reason=reason,
        missed=None,
        next_due_at=NOON + minutes(1),
    )


def test_years_of_outage_are_judged_at_once():
    verdict = due.judge(view(cadence=Every(1)), now=NOON + timedelta(days=2000))
    assert isinstance(verdict, Fire)
    assert verdict.due_at == NOON + timedelta(days=2000)


def test_the_same_cause_has_the_same_work():
    cause = identity.due_cause(NOON)
    assert cause == "due:2027-05-01T12:00:00Z"
    assert identity.work_id(MANIFEST, cause) == identity.work_id(MANIFEST, cause)
    assert identity.work_id(MANIFEST, cause) != identity.work_id(WORK, cause)
    assert identity.due_cause(NOON.astimezone()) == cause
