"""The screen of `headway top` in windows of any size."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_cli.serve.live_view import State, bars, draw, line_of, meter, shares
from headway_console.reading.dead_letters import FailureGroup
from headway_console.reading.groups import GroupRow
from headway_console.reading.runs import RunRow
from headway_console.reading.system import (
    Backlog,
    Coming,
    Counts,
    Dispatcher,
    Health,
    Leader,
    Overview,
    StartDelay,
    Throughput,
)
from headway_contract.manifests import PauseStatus
from msgspec import structs

NOW = datetime(2027, 6, 1, 12, 0, tzinfo=UTC)
ID = UUID(int=7)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def group(name: str, active: int = 0, cap: int | None = None, **waiting: int) -> GroupRow:
    return GroupRow(
        name=name, owner="app", max_active=cap, priority=0, enabled=True, rate=None, touched=[],
        frees_at=None, manifests=1, disabled=0, blocked=0, next_due_at=None, pending=0,
        active=active, in_progress=active, waiting=waiting, dead_letters=0,
    )  # fmt: skip


def run(message: str, percent: float | None = 40) -> RunRow:
    return RunRow(
        run=ID, work=ID, round=1, attempt=2, manifest="import-7", group="g", job="import",
        state="in_progress", cause="due", worker="w1", host="h", due_at=NOW, created_at=ago(90),
        started_at=ago(75), finished_at=None, failure_kind=None, failure_message=None,
        cancel_reason=None, percent=percent, message=message,
    )  # fmt: skip


def standing(**changes: object) -> State:
    fields = {
        "now": NOW,
        "health": Health(
            leader=Leader(holder="vm:12:abc", epoch=1, since=ago(99), ticked_at=ago(3)),
            backlogs=[Backlog(name="tick", waiting=0)],
            dispatchers=[Dispatcher(name="d", heard_since=NOW, last_heard_at=NOW)],
        ),
        "counts": Counts(
            manifests=3,
            disabled=0,
            blocked=1,
            troubled=0,
            dead_letters=2,
            workers=1,
            slots=10,
            waiting=0,
        ),
        "start_delay": StartDelay(runs=0, p50=None, p95=None, p99=None),
        "lately": Throughput(at=ago(300), completed=30, failed=2, cancelled=0),
        "day": [Throughput(at=NOW, completed=n, failed=0, cancelled=0) for n in (0, 4, 8)],
        "coming": [
            Coming(id=ID, external_id=f"due-{n}", job="j", group="g", fires_at=NOW + timedelta(n))
            for n in range(1, 9)
        ],
        "failing": [],
        "failures": [
            FailureGroup(
                fingerprint="f",
                code_version="",
                letters=2,
                asked=0,
                first_at=NOW,
                last_at=NOW,
                jobs=["import"],
                groups=["g"],
                failure_kind="ValueError",
                failure_message="bad\x1b[2Jline\nsecond",
                sample=ID,
                sample_job="import",
                sample_manifest=None,
            )
        ],
        "groups": [group("calm"), group("busy", 3, 3, group_cap=5)],
        **changes,
    }
    return State(overview=Overview(**fields), runs=[run("half\x1b]0;title\x07way")])


def text(lines) -> str:
    return "\n".join(line.plain for line in lines)


def test_everything_that_matters_is_there():
    shown = text(draw(standing(), where="http://x", columns=100))
    for words in (
        "leader vm:12, ticked 3s ago · 1 dispatcher · 1 worker, 10 slots",
        "passes: all keep up",
        "last 5 min: 30 completed, 2 failed, 0 cancelled (0.1/s)  24 h  ▄█",
        "3 manifests · 1 blocked · 2 open dead letters · waiting: 5 group cap",
        "busy       3 of 3     [############]  waiting: 5 group cap\ncalm       0 no limit",
        "import-7   1m15s  [#####.......]  40 %  attempt 2  half ]0;title way on w1",
        "in 1d  due-1  j",
        "    2  import: ValueError: bad [2Jline",
    ):
        assert words in shown
    assert "q quits" not in shown
    assert "\x1b" not in shown


def test_a_pause_of_all_is_counted_down():
    pause = PauseStatus(id=ID, covers="all manifests", count=3, by="ada", since=NOW, reason="disks")
    open_ended = standing(paused=[pause])
    ends = standing(paused=[structs.replace(pause, until=NOW + timedelta(minutes=62))])
    for state, left in ((open_ended, "until resumed"), (ends, "for 1h2m more")):
        _, line, *_ = draw(state, where="", columns=200)
        assert line.plain == (
            f"PAUSED: all manifests {left}, by ada, reason: disks · headway resume {ID}"
        )
        assert line_of(state.overview, 0).startswith("all manifests are paused · 3 manifests")
    assert "aused" not in line_of(standing().overview, 0)


def test_missing_and_late_data_is_reported():
    health = Health(
        leader=None,
        backlogs=[Backlog(name="dispatcher_outbox", waiting=4, oldest_at=ago(70))],
        dispatchers=[],
    )
    shown = text(draw(standing(health=health), where="", columns=100, note="no answer"))
    assert "no scheduler has ticked yet · 0 dispatchers" in shown
    assert "passes: dispatcher outbox stuck (4 waiting)" in shown
    assert "no answer" in shown


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (60, 16), (40, 10), (20, 5), (10, 1)])
def test_a_frame_fits_its_window(columns, lines):
    drawn = draw(standing(), where="http://somewhere.example.org", columns=columns, lines=lines)
    assert 0 < len(drawn) <= lines
    assert all(line.cell_len <= columns for line in drawn)


def test_lines_are_shared_turn_by_turn():
    assert shares([5, 1, 9], None) == [5, 1, 9]
    assert shares([5, 1, 9], 100) == [5, 1, 9]
    assert shares([5, 1, 9], 14) == [4, 1, 3]
    assert shares([5, 1, 9], 7) == [2, 1, 0]
    assert shares([5, 0], 3) == [0, 0]
    assert shares([], 3) == []


def test_bars_and_meters():
    assert bars([]) == ""
    assert bars([0, 0]) == "  "
    assert bars([0, 1, 800]) == " ▁█"
    assert len(bars([1] * 48)) == 12
    assert (meter(0), meter(0.5), meter(7)) == (
        "[............]",
        "[######......]",
        "[############]",
    )
