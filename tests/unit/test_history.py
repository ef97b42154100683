"""The fold of history: the same for any order, duplicates and snapshots (I10, I7)."""

import functools
from datetime import timedelta
from uuid import uuid5

import msgspec
import pytest
from headway_contract.lifecycle import (
    Activation,
    Failure,
    LeaseClaimed,
    RunActivated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from headway_decisions.runs import folding as decisions
from headway_history import Record, StoredEvent, WorkRows, compare, fold
from headway_history.events import SNAPSHOT
from headway_history.folding import fold_any
from headway_history.rows import Snapshot
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs
from support.lives import FAILURE, START, WORK, Life, lives


@given(lives(packed=True), st.data())
def test_the_short_way_agrees_with_the_rules_for_all_events(events, data):
    shuffled = data.draw(st.permutations(events))
    assert fold(shuffled) == fold_any(shuffled)


@given(lives(packed=True), st.data())
def test_in_any_order_and_any_number_of_times_it_is_the_same(events, data):
    shuffled = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events)))))
    assert fold(shuffled) == fold(events)


@given(lives(packed=True), st.data())
def test_a_snapshot_replaces_the_events_that_it_covers(events, data):
    covered = data.draw(st.integers(1, len(events)))
    then = fold(events[:covered])
    assert then.work is not None
    snapshot = StoredEvent(
        id=1000,
        type=SNAPSHOT,
        source="headway/dispatcher",
        occurred_at=START,
        recorded_at=START,
        data=msgspec.json.encode(
            Snapshot(
                covers=covered,
                work=then.work,
                runs=list(then.runs.values()),
                # As stored: the round of a letter implies its runs.
                letters=[structs.replace(letter, runs=[]) for letter in then.letters.values()],
            )
        ).decode(),
        work=WORK,
    )
    left = events[covered:]
    some_of_the_covered = data.draw(st.lists(st.sampled_from(events[:covered])))
    shuffled = data.draw(st.permutations([*left, *some_of_the_covered, snapshot]))
    assert fold(shuffled) == fold(events)


@given(lives())
def test_runs_fold_as_the_projector_folds_them(events):
    structs = {
        "headway.lease.claimed.v1": LeaseClaimed,
        "headway.run.started.v1": RunStarted,
        "headway.run.activated.v1": RunActivated,
        "headway.run.completed.v1": RunCompleted,
        "headway.run.failed.v1": RunFailed,
        "headway.run.cancelled.v1": RunCancelled,
    }
    for run in fold(events).runs.values():
        facts = [
            decisions.Fact(
                at=event.occurred_at,
                worker="w",
                data=msgspec.convert(
                    {
                        **msgspec.json.decode(event.data),
                        "lease": str(run.lease_id),
                        "run": str(run.run_id),
                        "token": "",
                        "nonce": "",
                    },
                    structs[event.type],
                ),
            )
            for event in events
            if event.type in structs
            and (event.run == run.run_id or (event.run is None and event.lease == run.lease_id))
        ]
        theirs = functools.reduce(decisions.fold, facts, decisions.Run(id=run.run_id))
        assert (run.state, run.worker, run.host) == (theirs.state, theirs.worker, theirs.host)
        assert (run.started_at, run.finished_at) == (theirs.started_at, theirs.finished_at)
        assert (run.output, run.cancel_reason) == (theirs.output, theirs.cancel_reason)
        failure = None if run.failure is None else msgspec.convert(run.failure, Failure)
        assert failure == theirs.failure
        assert tuple(msgspec.convert(run.activations or (), list[Activation])) == theirs.activations


class TestAStory:
    """The fold after each step of a history."""

    def test_queued(self):
        life = Life()
        life.queue()
        work = fold(life.events).work
        assert (work.state, work.runs, work.attempts, work.run_id) == ("queued", 0, 0, None)
        assert (work.not_before, work.received_at) == (START, START + timedelta(seconds=1))

    def test_dispatched_waiting_dispatched_settled(self):
        life = Life()
        life.queue()
        life.dispatch()
        assert fold(life.events).work.state == "dispatched"
        first = life.run
        life.say("lease.claimed", host="h")
        life.say("run.failed", failure=FAILURE)
        life.wait()
        work = fold(life.events).work
        assert (work.state, work.runs, work.attempts, work.run_id) == ("waiting", 1, 1, first)
        life.dispatch()
        work = fold(life.events).work
        assert (work.state, work.runs, work.run_id) == ("dispatched", 2, life.run)
        life.settle("completed")
        folded = fold(life.events)
        assert (folded.work.state, folded.work.outcome, folded.work.attempts) == (
            *("settled", "completed"),
            2,
        )
        assert [run.state for run in folded.runs.values()] == ["failed", "pending"]

    def test_a_retried_dead_letter_opens_the_next_round(self):
        life = Life()
        life.queue()
        life.dispatch()
        life.say("run.failed", failure=FAILURE)
        life.settle("dead_lettered")
        life.letter()
        [letter] = fold(life.events).letters.values()
        assert (letter.state, letter.attempts, letter.failure) == ("awaiting", 1, FAILURE)
        life.retry(input={"a": 2}, not_before=START + timedelta(hours=1))
        folded = fold(life.events)
        [letter] = folded.letters.values()
        assert (letter.state, letter.actor, letter.input) == ("retried", "me", {"a": 1})
        work = folded.work
        assert (work.state, work.round, work.attempts, work.outcome) == ("queued", 2, 0, None)
        assert (work.input, work.not_before) == ({"a": 2}, START + timedelta(hours=1))
        life.dispatch()
        assert fold(life.events).work.state == "dispatched"
        life.settle("completed")
        work = fold(life.events).work
        assert (work.state, work.outcome, work.runs, work.attempts) == (
            "settled",
            "completed",
            2,
            1,
        )

    def test_a_dead_letter_has_the_runs_of_its_round_and_how_it_was_edited(self):
        life = Life()
        life.queue()
        life.dispatch()
        life.say("run.failed", failure=FAILURE)
        life.wait()
        life.dispatch()
        life.say("run.failed", failure=FAILURE)
        life.settle("dead_lettered")
        life.letter()
        [letter] = fold(life.events).letters.values()
        assert [(run.state, run.failure) for run in letter.runs] == [("failed", FAILURE)] * 2
        assert letter.edit is None
        edit = [{"path": "/a", "was": 1, "now": 2}]
        life.retry(input={"a": 2}, edit=edit)
        life.dispatch()
        [letter] = fold(life.events).letters.values()
        assert (len(letter.runs), letter.edit) == (2, edit)
        # The letter shows a late start too.
        first = letter.runs[0]
        lease = uuid5(WORK, "lease 1")
        life.emit("run.started", {}, source="worker/w", run=first.run_id, lease=lease)
        [letter] = fold(life.events).letters.values()
        assert letter.runs[0].started_at == life.events[-1].occurred_at

    def test_a_snapshot_from_before_letters_had_their_runs_and_edits(self):
        life = Life()
        life.queue()
        life.dispatch()
        life.say("run.failed", failure=FAILURE)
        life.settle("dead_lettered")
        life.letter()
        life.retry(edit=[1])
        then = fold(life.events)
        data = msgspec.to_builtins(
            Snapshot(
                covers=len(life.events),
                work=then.work,
                runs=list(then.runs.values()),
                letters=list(then.letters.values()),
            )
        )
        for letter in data["letters"]:
            del letter["runs"], letter["edit"]
        life.emit(SNAPSHOT, data)
        [letter] = fold(life.events).letters.values()
        assert len(letter.runs) == 1
        assert letter.edit is UNSET

    @pytest.mark.parametrize(
        ("fields", "expected"), [({}, UNSET), ({"edit": []}, None), ({"edit": [1]}, [1])]
    )
    def test_an_edit_of_which_history_does_not_tell_is_unset(self, fields, expected):
        life = Life()
        life.queue()
        life.dispatch()
        life.settle("dead_lettered")
        life.letter()
        life.retry(**fields)
        folded = fold(life.events)
        [letter] = folded.letters.values()
        assert letter.edit == expected
        found = WorkRows(
            work=folded.work,
            runs=folded.runs,
            letters={letter.id: structs.replace(letter, edit="x")},
        )
        assert [difference.column for difference in compare(folded, found)] == (
            [] if expected is UNSET else ["edit"]
        )

    def test_bringing_forward_before_a_retry_does_not_affect_it(self):
        life = Life()
        life.queue(not_before=START + timedelta(days=1))
        life.bring_forward()
        assert fold(life.events).work.not_before == START + timedelta(seconds=2)
        life.dispatch()
        life.wait()
        again = START + timedelta(seconds=4 + 60)
        assert fold(life.events).work.not_before == again
        life.bring_forward()
        assert fold(life.events).work.not_before == START + timedelta(seconds=5)

    def test_work_without_a_beginning_is_not_known(self):
        life = Life()
        life.settle("cancelled")
        assert fold(life.events) == WorkRows()

    def test_unknown_events_change_nothing(self):
        life = Life()
        life.queue()
        before = fold(life.events)
        life.emit("work.painted", {"colour": "green"})
        assert fold(life.events) == before


class TestComparing:
    """Differences between folded and found rows."""

    def folded(self) -> WorkRows:
        life = Life()
        life.queue()
        life.dispatch()
        return fold(life.events)

    def found(self) -> WorkRows:
        same = self.folded()
        return WorkRows(work=same.work, runs=same.runs, letters=same.letters)

    def test_none(self):
        assert compare(self.folded(), self.found()) == []

    def test_a_column(self):
        found = self.found()
        found.work.attempts = 5
        [difference] = compare(self.folded(), found)
        assert (difference.table, difference.column, difference.expected, difference.found) == (
            "work_queue",
            "attempts",
            0,
            5,
        )

    @pytest.mark.parametrize(
        ("absence", "kinds"), [("must_not", {"missing"}), ("may", set()), ("must", set())]
    )
    def test_rows_that_are_gone(self, absence, kinds):
        assert {
            difference.kind for difference in compare(self.folded(), WorkRows(), absence=absence)
        } == kinds

    def test_rows_that_should_be_gone(self):
        kinds = [
            difference.kind for difference in compare(self.folded(), self.found(), absence="must")
        ]
        assert kinds == ["unknown", "unknown"]

    def test_remaining_rows_must_be_right_during_deletion(self):
        found = self.found()
        found.runs = {}
        assert compare(self.folded(), found, absence="may") == []
        found.work.attempts = 5
        assert len(compare(self.folded(), found, absence="may")) == 1


@pytest.mark.parametrize("data", [{"work": str(WORK)}, {"work": WORK}])
def test_a_record_belongs_to_the_work_that_its_data_names(data):
    record = Record(event_id="e", type="t", subject="s", source="o", occurred_at=START, data=data)
    assert record.work_id == WORK
