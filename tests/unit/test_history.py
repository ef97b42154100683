"""The fold of history: the same for any order, duplicates and snapshots (I10, I7)."""

import functools
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

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
from headway_history.events import SNAPSHOT, WORK_WAITING
from headway_history.rows import Snapshot
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

START = datetime(2027, 1, 1, tzinfo=UTC)
WORK = UUID(int=1)
MANIFEST = UUID(int=2)
FAILURE = {"kind": "ValueError", "message": "boom", "stack": "", "retryable": True}


class Life:
    """Records the events of a piece of work as the services would."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.runs = 0
        self.attempts = 0
        self.round = 1
        self.run: UUID | None = None

    def emit(
        self, type_: str, data: Any, *, source="headway/dispatcher", run=None, lease=None
    ) -> StoredEvent:
        number = len(self.events) + 1
        at = START + timedelta(seconds=number)
        event = StoredEvent(
            id=number,
            type=type_ if type_.endswith(".v1") else f"headway.{type_}.v1",
            source=source,
            occurred_at=at,
            recorded_at=at + timedelta(seconds=0.5),
            data=msgspec.json.encode(data).decode(),
            work=WORK,
            run=run,
            lease=lease,
        )
        self.events.append(event)
        return event

    @property
    def now(self) -> datetime:
        """The time of the next event."""
        return START + timedelta(seconds=len(self.events) + 1)

    def queue(self, **fields: Any) -> None:
        data = {
            "work": WORK,
            "manifest_id": MANIFEST,
            "group": "ops",
            "job": "job",
            "input": {"a": 1},
            "cause": "due:x",
            "queued_at": START,
            "rank": START,
            "terms": {"retry": {"attempts": 3}, "timeout_seconds": 60},
        }
        self.emit("work.queued", data | fields, source="headway/scheduler")

    def dispatch(self) -> None:
        self.runs += 1
        self.run = uuid5(WORK, str(self.runs))
        data = {
            "run": self.run,
            "work": WORK,
            "lease": self.lease,
            "round": self.round,
            "attempt": self.attempts + 1,
            "job": "job",
            "group": "ops",
            "max_run_seconds": 100,
        }
        self.emit("run.dispatched", data, run=self.run, lease=self.lease)

    @property
    def lease(self) -> UUID:
        return uuid5(WORK, f"lease {self.runs}")

    def say(self, type_: str, **data: Any) -> None:
        run = None if type_.startswith("lease") else self.run
        self.emit(type_, data, source="worker/w", run=run, lease=self.lease)

    def wait(self, *, counted: bool = True) -> None:
        self.attempts += counted
        data = {
            "work": WORK,
            "round": self.round,
            "run": self.run,
            "runs": self.runs,
            "attempts": self.attempts,
            "not_before": self.now + timedelta(seconds=60),
        }
        self.emit(WORK_WAITING, data)

    def settle(self, outcome: str) -> None:
        self.attempts += outcome in ("completed", "dead_lettered")
        data = {
            "work": WORK,
            "round": self.round,
            "outcome": outcome,
            "run": self.run,
            "attempts": self.attempts,
            "settled_at": self.now,
        }
        self.emit("work.settled", data)

    def cancel(self, *, unknown: bool = False) -> None:
        data = {"work": WORK, "round": self.round, "manifest_id": MANIFEST, "group": "ops"}
        self.emit("work.cancel_requested", data | {"reason": "no", "unknown": unknown})

    def bring_forward(self) -> None:
        data = {
            "round": self.round,
            "runs": self.runs,
            "rank": START - timedelta(seconds=len(self.events)),
            "not_before": self.now,
        }
        self.emit("work.brought_forward", data)

    def letter(self) -> None:
        data = {
            "dead_letter": uuid5(WORK, f"letter {self.round}"),
            "work": WORK,
            "round": self.round,
            "group": "ops",
            "job": "job",
            "input": {"a": 1},
            "reason": "attempts_exhausted",
            "failure": FAILURE,
            "attempts": self.attempts,
        }
        self.emit("dead_letter.created", data)

    def retry(self, **columns: Any) -> None:
        letter = uuid5(WORK, f"letter {self.round}")
        self.round, self.attempts, self.run = self.round + 1, 0, None
        data = {
            "dead_letter": letter,
            "round": self.round,
            "actor": "me",
            "resolved_at": self.now,
            "queued_at": self.now,
            "not_before": self.now,
            "rank": self.now,
            **columns,
        }
        self.emit("dead_letter.retried", data)

    def acknowledge(self) -> None:
        data = {
            "dead_letter": uuid5(WORK, f"letter {self.round}"),
            "round": self.round,
            "note": "seen",
            "actor": "me",
            "resolved_at": self.now,
        }
        self.emit("dead_letter.acknowledged", data)


@st.composite
def lives(draw: st.DrawFn) -> list[StoredEvent]:
    """Generate histories of work that end at any point."""
    life = Life()
    if draw(st.integers(0, 9)) == 0:
        life.cancel(unknown=True)
        life.settle("cancelled")
        if draw(st.booleans()):
            life.queue()
        return life.events
    life.queue(not_before=draw(st.none() | st.just(START + timedelta(days=1))))
    while True:
        if draw(st.integers(0, 4)) == 0:
            life.bring_forward()
        if draw(st.integers(0, 5)) == 0:
            life.cancel()
            life.settle("cancelled")
            return life.events
        if draw(st.integers(0, 5)) == 0:
            return life.events
        life.dispatch()
        if not _run(draw, life):
            return life.events


def _run(draw: st.DrawFn, life: Life) -> bool:
    """Record a run; return whether the work waits for another."""
    if draw(st.integers(0, 5)) == 0:
        return False
    life.say("lease.claimed", host="h")
    if draw(st.integers(0, 5)):
        life.say("run.started")
    for key in draw(st.lists(st.sampled_from("ab"), max_size=3)):
        life.say("run.activated", activations=[{"manifest": "m", "key": key, "input": key}])
    end = draw(
        st.sampled_from(["none", "completed", "retry", "retry", "stopped", "letter", "cancel"])
    )
    if end == "completed":
        life.say("run.completed", output=draw(st.none() | st.integers()))
        life.settle("completed")
    elif end == "cancel":
        life.cancel()
        life.say("run.cancelled", reason="no")
        life.settle("cancelled")
    elif end != "none":
        life.say("run.failed", failure=FAILURE)
        if end == "letter":
            life.settle("dead_lettered")
            life.letter()
            seen_to = draw(st.sampled_from(["not", "acknowledged", "retried"]))
            if seen_to == "acknowledged":
                life.acknowledge()
            if seen_to == "retried":
                life.retry(**draw(st.sampled_from([{}, {"input": 7}, {"not_before": life.now}])))
                return True
        else:
            life.wait(counted=end == "retry")
            return True
    return False


@given(lives(), st.data())
def test_in_any_order_and_any_number_of_times_it_is_the_same(events, data):
    shuffled = data.draw(st.permutations(events + data.draw(st.lists(st.sampled_from(events)))))
    assert fold(shuffled) == fold(events)


@given(lives(), st.data())
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
