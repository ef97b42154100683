"""How the runs of a lease end that is taken away."""

from uuid import UUID

import pytest
from headway_decisions.reaping import LiveRun, endings

BEGUN, UNBEGUN, OVERDUE = (UUID(int=number) for number in (1, 2, 3))
LIVE = [
    LiveRun(run=BEGUN, begun=True),
    LiveRun(run=UNBEGUN, begun=False),
    LiveRun(run=OVERDUE, begun=True, overdue=True),
]


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        ("orphaned", ["orphaned", "unbegun", "orphaned"]),
        ("undelivered", ["undelivered", "undelivered", "undelivered"]),
        ("timed_out", ["recalled", "recalled", "timed_out"]),
    ],
)
def test_a_shared_lease(why, expected):
    assert endings(why, LIVE, shared=True) == dict(
        zip((BEGUN, UNBEGUN, OVERDUE), expected, strict=True)
    )


@pytest.mark.parametrize("why", ["orphaned", "undelivered", "timed_out"])
@pytest.mark.parametrize("run", LIVE, ids=["begun", "unbegun", "overdue"])
def test_the_only_run_of_a_lease_is_its_own_cause(why, run):
    assert endings(why, [run], shared=False) == {run.run: why}
