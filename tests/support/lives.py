"""The events of one piece of work, as the services record them."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import msgspec
from headway_history import StoredEvent
from headway_history.events import WORK_WAITING
from hypothesis import strategies as st

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

    def complete_in_lease(self, *, is_settled: bool) -> None:
        """Record the part of a packed event about a run; it may settle the work."""
        self.attempts += is_settled
        part = {
            "run": self.run,
            "work": WORK,
            "started_at": self.now - timedelta(seconds=2),
            "finished_at": self.now,
            "worker_finished_at": self.now,
            "output": len(self.events),
            "round": self.round,
            "attempts": self.attempts,
            "settled_at": self.now if is_settled else None,
        }
        data = {"runs": [part]}
        self.emit("runs.completed", data, source="worker/w", run=self.run, lease=self.lease)

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
def lives(draw: st.DrawFn, *, packed: bool = False) -> list[StoredEvent]:
    """Generate histories of work that end at any point, or also in a packed event."""
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
        if packed and draw(st.booleans()):
            _complete_in_lease(draw, life)
            return life.events
        if not _run(draw, life):
            return life.events


def _complete_in_lease(draw: st.DrawFn, life: Life) -> None:
    for type_ in draw(st.sampled_from([[], ["lease.claimed"], ["lease.claimed"] * 2])):
        life.say(type_, host="h")
    if draw(st.integers(0, 3)) == 0:
        life.say("run.started")
    life.complete_in_lease(is_settled=draw(st.integers(0, 3)) > 0)


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
