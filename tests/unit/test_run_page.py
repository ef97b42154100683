"""The page of a run: its waterfall, and what follows."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from headway_console.pages import filters, waterfall
from headway_console.pages.runs import what_follows
from headway_console.reading.events import EventRow
from headway_console.reading.runs import RunDetails, RunRow

ZERO = datetime(2027, 3, 10, 12, tzinfo=UTC)
LEASE, WORK = UUID(int=7), UUID(int=8)


def at(milliseconds: float) -> datetime:
    return ZERO + timedelta(milliseconds=milliseconds)


def attempt(number: int, created: float, **fields: Any) -> RunRow:
    row = RunRow(
        run=UUID(int=number), work=WORK, round=1, attempt=number, group="g", job="j",
        state="pending", cause="due:x", created_at=at(created),
    )  # fmt: skip
    return RunRow(**{name: getattr(row, name) for name in row.__struct_fields__} | fields)


def run_of(row: RunRow, *, claimed: float | None = None, **fields: Any) -> RunDetails:
    timeline = []
    if claimed is not None:
        event = EventRow(
            number=1, id="e", type="headway.lease.claimed.v1", subject="s", source="worker/w",
            occurred_at=at(claimed), recorded_at=at(claimed), accepted=True, refusal=None,
            work=None, run=None, lease=LEASE, data={},
        )  # fmt: skip
        timeline = [event]
    values: dict[str, Any] = {
        "status": row, "lease": LEASE, "last_heard_at": None, "reissued": 0,
        "begun_elsewhere": 0, "work_state": "dispatched", "work_outcome": None,
        "wait_reason": None, "decided_at": at(0), "queued_at": at(0), "received_at": at(10),
        "not_before": at(0), "retry": {"attempts": 3}, "timeout_seconds": 60.0,
        "on_dead_letter": "block", "dead_letter": None, "letter_state": None,
        "letter_round": None, "attempts": [row], "lease_runs": [], "timeline": timeline,
    }  # fmt: skip
    return RunDetails(**values | fields)


def drawn(run: RunDetails, now: float = 1000) -> list[tuple[str, float, float | None]]:
    steps = waterfall.steps_of(run, now=at(now))
    for step in steps:
        assert 0 <= step.x <= step.x + step.width <= waterfall.WIDTH + 0.1
        assert step.width > 0
    return [
        (step.name, round(step.offset * 1000), None if step.took is None else step.took * 1000)
        for step in steps
    ]


def test_the_steps_of_a_run_have_offsets_from_the_decision():
    row = attempt(1, 30, state="completed", started_at=at(55), finished_at=at(100))
    assert drawn(run_of(row, claimed=50)) == [
        ("Decided", 0, None), ("Queued", 10, 10), ("Admitted", 30, 20), ("Claimed", 50, 20),
        ("Started", 55, 5), ("Ended", 100, 45),
    ]  # fmt: skip


def test_a_live_run_has_one_open_step():
    pending = run_of(attempt(1, 30))
    assert drawn(pending)[-2:] == [("Admitted", 30, 20), ("Claimed", 1000, 970)]
    assert drawn(run_of(attempt(1, 30), claimed=50))[-1] == ("Started", 1000, 950)
    begun = run_of(attempt(1, 30, state="in_progress", started_at=at(60)), claimed=50)
    assert drawn(begun)[-1] == ("Ended", 1000, 940)
    for run in (pending, begun):
        steps = waterfall.steps_of(run, now=at(1000))
        assert [step.at is None for step in steps] == [False] * (len(steps) - 1) + [True]


def test_unknown_claims_unstarted_runs_and_wrong_clocks():
    row = attempt(1, 30, state="completed", started_at=at(55), finished_at=at(100))
    names = [name for name, _, _ in drawn(run_of(row))]
    assert names == ["Decided", "Queued", "Admitted", "Started", "Ended"]
    cancelled = attempt(1, 30, state="cancelled", finished_at=at(80))
    assert drawn(run_of(cancelled))[-2:] == [("Admitted", 30, 20), ("Ended", 80, 50)]
    early = drawn(run_of(row, claimed=-5000))
    assert early[2:5] == [("Admitted", 30, 20), ("Claimed", 30, 0), ("Started", 55, 25)]


def test_a_later_attempt_begins_where_the_one_before_ended():
    first = attempt(1, 30, state="failed", started_at=at(50), finished_at=at(100))
    second = attempt(2, 5000, state="completed", started_at=at(5020), finished_at=at(5040))
    run = run_of(second, attempts=[first, second])
    assert drawn(run)[:2] == [("Attempt 1 ended", 0, None), ("Admitted", 4900, 4900)]
    retried = run_of(second, attempts=[first, second], not_before=at(4100))
    assert drawn(retried)[:3] == [
        ("Attempt 1 ended", 0, None), ("Ready", 4000, 4000), ("Admitted", 4900, 900),
    ]  # fmt: skip
    again = run_of(second, attempts=[first, second], queued_at=at(4000))
    assert drawn(again)[:2] == [("Queued again", 0, None), ("Admitted", 1000, 1000)]


class TestWhatFollows:
    failed = attempt(1, 30, state="failed", started_at=at(50), finished_at=at(100))

    def test_nothing_follows_a_live_or_a_settled_run(self):
        assert what_follows(run_of(attempt(1, 30))) is None
        done = attempt(1, 30, state="completed", started_at=at(50), finished_at=at(100))
        assert what_follows(run_of(done, work_state="settled", work_outcome="completed")) is None

    def test_a_retry_says_when_and_for_what_it_waits(self):
        run = run_of(self.failed, work_state="waiting", wait_reason="retry", not_before=at(60_000))
        follows = what_follows(run)
        assert follows is not None
        assert (follows.text, follows.at) == ("Attempt 2 of 3 is next", at(60_000))
        assert follows.link == f"/work/{WORK}"
        assert "retry" in follows.note

    def test_another_attempt_is_linked(self):
        second = attempt(2, 5000, state="in_progress", started_at=at(5020))
        follows = what_follows(run_of(self.failed, attempts=[self.failed, second]))
        assert follows is not None
        assert (follows.text, follows.link, follows.state) == (
            "Attempt 2 followed", f"/runs/{second.run}", "in_progress",
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("state", "policy", "blocks"),
        [("awaiting", "block", True), ("awaiting", "go_on", False), ("retried", "block", False)],
    )
    def test_a_dead_letter_is_linked_and_says_whether_it_blocks(self, state, policy, blocks):
        row = attempt(1, 30, state="failed", finished_at=at(100), manifest="m")
        follows = what_follows(
            run_of(
                row, work_state="settled", dead_letter=UUID(int=9), letter_state=state,
                letter_round=1, on_dead_letter=policy,
            )
        )  # fmt: skip
        assert follows is not None
        assert follows.link == f"/dead-letters/{UUID(int=9)}"
        assert bool(follows.note) == blocks


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0 ms"), (0.0004, "0.4 ms"), (0.0512, "51.2 ms"), (1.24, "1\u202f240 ms"), (69.214, "69.21 s"), (4500, "1.2 h")],
)  # fmt: skip
def test_short_durations_are_exact(value, text):
    assert filters.milliseconds(value) == text


def test_an_explanation_links_what_it_names_and_is_escaped():
    identity = UUID(int=5)
    linked = filters.linked(
        f"<b> work {identity} was queued; dead letter {identity}; job {identity}"
    )
    assert linked.startswith("&lt;b&gt; work <a href=")
    assert f'<a href="/work/{identity}"><code>00000000</code></a> was queued' in linked
    assert f'dead letter <a href="/dead-letters/{identity}">' in linked
    assert linked.endswith(f"job {identity}")
