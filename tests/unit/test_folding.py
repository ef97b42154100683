"""Accepting and folding of events: the same outcome for any order and for duplicates."""

import functools
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_contract.lifecycle import (
    Activation,
    Failure,
    LeaseClaimed,
    LeaseRenewed,
    LeaseRevoked,
    RunActivated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from headway_contract.subjects import DISPATCHER
from headway_decisions.runs import acceptance
from headway_decisions.runs.acceptance import Arrived, Lease
from headway_decisions.runs.folding import Fact, Run, fold, unite
from hypothesis import given
from hypothesis import strategies as st

LEASE, RUN, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
T0 = datetime(2027, 5, 1, tzinfo=UTC)
RIGHTS = {"lease": LEASE, "token": "secret", "nonce": "n1"}
MINE = Lease(id=LEASE, token="secret")
BOOM = Failure(kind="ValueError", message="boom")


def fact(data, *, second: int = 0, worker: str = "w1") -> Fact:
    return Fact(at=T0 + timedelta(seconds=second), worker=worker, data=data)


CLAIMED = fact(LeaseClaimed(**RIGHTS, host="h1"))
STARTED = fact(RunStarted(**RIGHTS, run=RUN), second=1)
RENEWED = fact(LeaseRenewed(**RIGHTS), second=2)
MAIL = Activation(manifest="mail", input={"b": 1, "a": [2]})
MAIL_AGAIN = Activation(manifest="mail", key="1", input=None)
ARCHIVE = Activation(manifest="archive")
ACTIVATED = fact(RunActivated(**RIGHTS, run=RUN, activations=[MAIL, ARCHIVE]), second=2)
ACTIVATED_TOO = fact(RunActivated(**RIGHTS, run=RUN, activations=[MAIL_AGAIN, MAIL]), second=2)
COMPLETED = fact(RunCompleted(**RIGHTS, run=RUN, output=[1]), second=3)
FAILED = fact(RunFailed(**RIGHTS, run=RUN, failure=BOOM), second=4, worker=DISPATCHER)
CANCELLED = fact(RunCancelled(**RIGHTS, run=RUN, reason="asked"), second=5)
OUTCOMES = [COMPLETED, FAILED, CANCELLED]


def arrived(*facts: Fact, sequence: int = 1, predecessor: int = 0, worker: str = "w1") -> Arrived:
    return Arrived(worker=worker, sequence=sequence, predecessor=predecessor, facts=facts)


def folded(facts) -> Run:
    return functools.reduce(fold, facts, Run(id=RUN))


@given(st.data(), st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES))
def test_the_fold_is_the_same_for_every_order_with_duplicates_and_a_refused_rival(
    data, outcome, rival
):
    accepted = [CLAIMED, STARTED, RENEWED, ACTIVATED, ACTIVATED_TOO, outcome]
    expected = folded(accepted)
    extra = data.draw(st.lists(st.sampled_from(accepted), max_size=6))
    shuffled = data.draw(st.permutations([*accepted, *extra]))
    judged = acceptance.judge(MINE, {RUN: folded(shuffled)}, arrived(rival, worker=rival.worker))
    assert judged.refusals == ("run_ended",)
    assert judged.runs == {RUN: expected}
    assert expected.ended
    assert expected.started_at == STARTED.at
    assert expected.finished_at == outcome.at
    assert expected.activations == (ARCHIVE, MAIL, MAIL_AGAIN)


@given(
    st.permutations([STARTED, fact(RunCompleted(**RIGHTS, run=RUN), second=-5)]),
    st.lists(st.booleans(), max_size=3),
)
def test_an_end_before_its_start_is_moved_to_it_in_whichever_order_they_come(facts, again):
    run = folded([*facts, *(facts[number] for number in again)])
    assert run.state == "completed"
    assert run.finished_at == run.started_at == STARTED.at


@given(st.data())
def test_whichever_rival_is_accepted_first_stays(data):
    """Two processes report different outcomes; the projector decides once, under the lock."""
    first, second = data.draw(st.permutations([COMPLETED, FAILED]))
    judged = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(first, worker=first.worker))
    again = acceptance.judge(
        judged.lease, judged.runs, arrived(second, sequence=2, predecessor=1, worker=second.worker)
    )
    assert judged.refusals == (None,)
    assert again.refusals in [("run_ended",), ("lease_ended",)]
    assert again.runs == judged.runs


@given(st.permutations([1, 2, 3, 4, 5]))
def test_the_mark_moves_along_the_chain_whatever_arrives_first(order):
    lease = MINE
    for sequence in order:
        lease = acceptance.advance(lease, (sequence - 1) * 10, sequence * 10)
        assert lease.sequence <= 50
    assert lease.sequence == 50
    assert lease.loose_links == {}


def test_a_message_that_names_no_predecessor_of_ours_does_not_move_the_mark():
    lease = acceptance.advance(MINE, 7, 9)
    assert lease.sequence == 0
    assert acceptance.advance(lease, 0, 7).sequence == 9


def test_claim_start_and_end():
    judged = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    assert judged.refusals == (None, None)
    assert (judged.lease.claimed_by, judged.lease.nonce) == ("w1", "n1")
    assert judged.runs[RUN].state == "in_progress"
    assert judged.runs[RUN].host == "h1"
    ended = acceptance.judge(
        judged.lease, judged.runs, arrived(COMPLETED, predecessor=1, sequence=2)
    )
    assert ended.lease.ended
    assert ended.runs[RUN].output == [1]


def test_an_event_of_an_unclaimed_lease_implies_its_claim():
    judged = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(STARTED, sequence=9, predecessor=8))
    assert judged.refusals == (None,)
    assert judged.lease.claimed_by == "w1"
    late = acceptance.judge(judged.lease, judged.runs, arrived(CLAIMED, sequence=8))
    assert late.refusals == (None,)
    assert late.lease.sequence == 9


STOLEN = {"lease": LEASE, "token": "guessed", "nonce": "n1"}
SECOND_PROCESS = {"lease": LEASE, "token": "secret", "nonce": "n2"}


@pytest.mark.parametrize(
    ("data", "worker", "refusal"),
    [
        (RunCompleted(**STOLEN, run=RUN), "w1", "wrong_token"),
        (RunCompleted(lease=OTHER, token="secret", nonce="n1", run=RUN), "w1", "wrong_lease"),
        (RunCompleted(**RIGHTS, run=RUN), "w2", "not_the_claimant"),
        (RunCompleted(**SECOND_PROCESS, run=RUN), "w1", "not_the_claimant"),
        (LeaseClaimed(**SECOND_PROCESS), "w1", "not_the_claimant"),
        (LeaseClaimed(**RIGHTS), "w1", "already_claimed"),
        (RunStarted(**RIGHTS, run=RUN), "w1", "already_started"),
        (RunCompleted(**RIGHTS, run=OTHER), "w1", "unknown_run"),
        (LeaseRevoked(**RIGHTS, reason="mischief"), "w1", "not_the_claimant"),
        (RunCompleted(**STOLEN, run=RUN), DISPATCHER, "wrong_token"),
    ],
)
def test_a_refused_event_changes_nothing(data, worker, refusal):
    claimed = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    judged = acceptance.judge(
        claimed.lease,
        claimed.runs,
        arrived(fact(data, worker=worker), sequence=2, predecessor=1, worker=worker),
    )
    assert judged.refusals == (refusal,)
    assert judged.runs == claimed.runs
    assert judged.lease.claimed_by == "w1"
    assert not judged.lease.ended
    assert judged.lease.sequence == 2, "a refused message is still a link of the chain"


def test_the_dispatcher_takes_a_lease_away():
    claimed = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    revoked = fact(LeaseRevoked(**RIGHTS, reason="orphaned"), worker=DISPATCHER)
    judged = acceptance.judge(
        claimed.lease,
        claimed.runs,
        arrived(revoked, FAILED, sequence=2, predecessor=1, worker=DISPATCHER),
    )
    assert judged.refusals == (None, None)
    assert judged.lease.ended
    assert judged.runs[RUN].state == "failed"
    assert judged.runs[RUN].worker == "w1"
    late = acceptance.judge(
        judged.lease, judged.runs, arrived(COMPLETED, sequence=3, predecessor=2)
    )
    assert late.refusals == ("run_ended",)


def test_a_withdrawn_lease_cannot_be_claimed():
    revoked = fact(LeaseRevoked(**RIGHTS, reason="undelivered"), worker=DISPATCHER)
    judged = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(revoked, FAILED, worker=DISPATCHER))
    assert judged.refusals == (None, None)
    late = acceptance.judge(judged.lease, judged.runs, arrived(CLAIMED, STARTED, sequence=2))
    assert late.refusals == ("lease_ended", "lease_ended")
    assert late.runs == judged.runs


def test_one_key_with_two_inputs_comes_to_the_same_whichever_is_first():
    first, second = Activation(manifest="mail", input=1), Activation(manifest="mail", input=2)
    assert unite([first, second]) == unite([second, first]) == (first,)


def test_an_activation_counts_while_the_run_lives_and_not_after_its_end():
    claimed = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    activated = acceptance.judge(
        claimed.lease, claimed.runs, arrived(ACTIVATED, sequence=2, predecessor=1)
    )
    assert activated.refusals == (None,)
    assert activated.runs[RUN].activations == (ARCHIVE, MAIL)
    ended = acceptance.judge(
        activated.lease, activated.runs, arrived(COMPLETED, sequence=3, predecessor=2)
    )
    late = acceptance.judge(
        ended.lease, ended.runs, arrived(ACTIVATED_TOO, sequence=4, predecessor=3)
    )
    assert late.refusals == ("run_ended",)
    assert late.runs == ended.runs


def test_an_activation_that_its_run_s_end_has_overtaken_counts():
    """The activation was stored before the end and delivered after it."""
    claimed = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    ended = acceptance.judge(
        claimed.lease, claimed.runs, arrived(COMPLETED, sequence=4, predecessor=3)
    )
    assert ended.lease.ended
    first = acceptance.judge(ended.lease, ended.runs, arrived(ACTIVATED, sequence=2, predecessor=1))
    second = acceptance.judge(
        first.lease, first.runs, arrived(ACTIVATED_TOO, sequence=3, predecessor=2)
    )
    assert (first.refusals, second.refusals) == ((None,), (None,))
    assert second.runs[RUN].activations == (ARCHIVE, MAIL, MAIL_AGAIN)
    assert second.runs[RUN].state == "completed"
    assert second.lease.sequence == 4


def test_only_the_claimant_activates():
    claimed = acceptance.judge(MINE, {RUN: Run(id=RUN)}, arrived(CLAIMED, STARTED))
    stolen = fact(RunActivated(**SECOND_PROCESS, run=RUN, activations=[MAIL]))
    judged = acceptance.judge(
        claimed.lease, claimed.runs, arrived(stolen, sequence=2, predecessor=1)
    )
    assert judged.refusals == ("not_the_claimant",)
    assert judged.runs == claimed.runs
