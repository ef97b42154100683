"""Rules of healing: lost messages, messages in transit, and retries of requests."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_contract.reconcile import OutstandingWork, ReconcileAnswer
from headway_contract.settled import WorkSettled
from headway_decisions import healing
from headway_decisions.healing import (
    AskAgain,
    Expired,
    Known,
    Lost,
    Mark,
    OnItsWay,
    Settled,
    Sight,
)

NOON = datetime(2027, 3, 28, 12, tzinfo=UTC)
LEEWAY = timedelta(seconds=30)
MARK = Mark(created="first", sequence=100, taken_at=NOON)


def sight(**changes) -> Sight:
    return Sight(**{"created": "first", "last_sequence": 150, "done_through": 99, **changes})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (sight(), "waiting"),
        (sight(done_through=100), "passed"),
        (sight(done_through=150), "passed"),
        (sight(created="second"), "new_stream"),
        (sight(created="second", last_sequence=0, done_through=0), "new_stream"),
        (sight(last_sequence=99), "rolled_back"),
        (sight(last_sequence=100, done_through=100), "passed"),
    ],
)
def test_a_mark_is_compared_with_the_stream(seen, expected):
    assert healing.reach(MARK, seen) == expected


def test_lost_requests_are_republished_when_they_cannot_be_in_transit():
    old, new, untold = UUID(int=1), UUID(int=2), UUID(int=3)
    times = {old: NOON - timedelta(minutes=1), new: NOON}
    seen = sight(done_through=100)
    assert healing.unheard([old, new, untold], times, MARK, seen, leeway=LEEWAY) == [old]
    assert healing.unheard([old], times, MARK, sight(), leeway=LEEWAY) == []
    assert healing.unheard([old], times, None, seen, leeway=LEEWAY) == []


@pytest.mark.parametrize(
    ("seen", "seconds", "expected"),
    [
        (sight(), -60, None),
        (sight(done_through=100), -60, "passed"),
        (sight(created="second"), -60, "new_stream"),
        # The stream was restored from an older copy, and may still hold older messages.
        (sight(last_sequence=80, done_through=3), -60, None),
        (sight(last_sequence=80, done_through=80), -60, None),
        # Published after the mark, or by a transaction that was open when the mark was taken.
        (sight(done_through=150), -30, "passed"),
        (sight(done_through=150), -29, None),
        (sight(done_through=150), 60, None),
        (sight(created="second"), -10, None),
    ],
)
def test_only_messages_before_a_passed_mark_are_lost(seen, seconds, expected):
    at = NOON + timedelta(seconds=seconds)
    assert healing.is_lost(at, MARK, seen, leeway=LEEWAY) == expected


def test_without_a_mark_nothing_is_lost():
    seen = sight(done_through=150)
    assert healing.is_lost(NOON - timedelta(days=1), None, seen, leeway=LEEWAY) is None


def test_every_requested_work_gets_one_verdict():
    ids = [UUID(int=number) for number in range(1, 9)]
    end = WorkSettled(
        work=ids[0], round=1, group="ops", outcome="completed", runs=1, attempts=1, settled_at=NOON
    )
    answer = ReconcileAnswer(
        settled=[end], left=[ids[1]], unknown=[ids[2], ids[3], ids[6]], expired=[ids[4], ids[7]]
    )
    works = [OutstandingWork(work=work, queued_at=NOON - timedelta(minutes=5)) for work in ids]
    works[3] = OutstandingWork(work=ids[3], queued_at=NOON)
    verdicts = healing.judge(
        works,
        answer,
        republished_at={ids[6]: NOON, ids[7]: NOON},
        mark=MARK,
        sight=sight(done_through=120),
        leeway=LEEWAY,
    )
    assert verdicts == {
        ids[0]: Settled(end),
        ids[1]: AskAgain(),
        ids[2]: Lost("passed"),
        ids[3]: OnItsWay(),
        ids[4]: Expired(),
        ids[5]: Known(),
        ids[6]: OnItsWay(),
        ids[7]: OnItsWay(),
    }


def test_pauses_double_up_to_an_hour():
    minute = timedelta(minutes=1)
    pauses = [healing.pause(asks, first=minute) / minute for asks in (0, 1, 2, 5, 6, 7, 10_000)]
    assert pauses == [1, 2, 4, 32, 60, 60, 60]
    assert healing.pause(0, first=timedelta(hours=2)) == timedelta(hours=2)
