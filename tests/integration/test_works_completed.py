"""Completed work that the dispatcher packs into one event."""

from contextlib import ExitStack, nullcontext
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from headway import App, allow, every, exclude_times, manual, once, spaced
from headway_clock import new_id, utc_now
from headway_contract import Event, Malformed, decode, encode, event, subjects
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_contract.settled import DeadLetterRetried, WorkSettled
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish
from headway_scheduler.operate import pause
from headway_scheduler.outcomes.settle import _begin_spans, settle, take_in
from headway_scheduler.store import manifests
from support.enqueuing import app_with_jobs, process
from support.outcomes import completed, packed_event
from support.timeline import START, Timeline, minutely

AT = "2027-03-01 12:05"
FIVE = {"when": every(minutes=5)}
# Manifests by name: most settle in one statement, the others are judged one by one.
SIMPLE: dict[str, dict[str, Any]] = {
    "cron": FIVE,
    "once": {"when": once(AT, tz="UTC")},
    "allowing": {**FIVE, "overlap": allow(2)},
    "queueing": {**FIVE, "overlap": "queue_one"},
    "resumed": FIVE,
}
JUDGED: dict[str, dict[str, Any]] = {
    "jittered": {**FIVE, "jitter": 30},
    "excluding": {**FIVE, "exclude": [exclude_times("12:10-12:25")]},
    "spaced": {"when": spaced(minutes=5)},
    "parent": FIVE,
    "twice": {**FIVE, "overlap": allow(2)},
    "owing": {**FIVE, "overlap": "queue_one"},
    "late": {"when": every(minutes=1)},
    "disabled": FIVE,
    "paused": FIVE,
    "blocked": FIVE,
    "retired": {**FIVE, "job": "retired"},
    "in_disabled_group": {**FIVE, "group": "closed"},
}
STATE = """
    SELECT 'manifest' AS kind, to_jsonb(manifest) AS row FROM scheduler.manifest
    UNION ALL SELECT 'occurrence', to_jsonb(occurrence) FROM scheduler.occurrence
    UNION ALL SELECT 'work', to_jsonb(work) FROM scheduler.work
    UNION ALL SELECT 'enqueued', to_jsonb(enqueued) FROM scheduler.enqueued
    ORDER BY 1, 2
"""


@pytest.fixture
def timeline(database):
    return Timeline(database)


def app() -> App:
    made = App("test")
    for job in ("job", "retired"):
        made.job(job)(lambda ctx: None)
    for name, options in (SIMPLE | JUDGED).items():
        made.schedule(name, **{"job": "job", "group": "open", **options})
    made.manifest("parent").include("child", job="job")
    return made


def events_of(*data: Any) -> list[Event]:
    return [event(each, id=new_id(), source="x", subject="x", time=START) for each in data]


async def fill(timeline) -> None:
    """Fire every manifest, and change the state of some."""
    await timeline.declare(app())
    await timeline.tick(max_entries=None)  # the spaced manifest
    await timeline.tick(max_entries=None, minutes=5, seconds=40)
    timeline.at(minutes=7)
    for name in ("twice", "owing"):
        await timeline.trigger(name)
    for name in ("paused", "resumed"):
        await timeline.do(pause.pause, PauseRequest(manifests=[name], reason="test"))
    await timeline.do(pause.resume, ResumeRequest(manifests=["resumed"]))
    await timeline.change("disabled", enabled=False)
    await timeline.change_group("closed", enabled=False)
    await timeline.rows(
        "UPDATE scheduler.manifest SET dead_letters = ARRAY[id] WHERE external_id = 'blocked'"
    )
    await timeline.rows(
        "UPDATE scheduler.job SET retired_at = $1, declared_by = '{}' WHERE name = 'retired'",
        timeline.clock.at,
    )


async def test_one_statement_settles_work_as_the_rules_would(timeline, monkeypatch):
    await fill(timeline)
    now = timeline.at(minutes=8)
    outstanding = await timeline.rows(
        "SELECT work.*, external_id FROM scheduler.work JOIN scheduler.manifest"
        " ON manifest.id = work.manifest_id"
    )
    assert {row["external_id"] for row in outstanding} == SIMPLE.keys() | JUDGED.keys()
    outcomes = completed(outstanding, now - timedelta(seconds=30))
    ids = [outcome.manifest_id for outcome in outcomes]
    left: list[WorkSettled] = []

    async def judge_all(connection) -> None:
        locked = await connection.fetch(manifests["lock_with_children"], ids, ids)
        await settle(connection, outcomes, locked, now=now)

    async def settle_packed(connection) -> None:
        async def settle_left(connection, outcomes, locked, *, now):
            left.extend(outcomes)
            return await settle(connection, outcomes, locked, now=now)

        with monkeypatch.context() as patch:
            patch.setattr("headway_scheduler.outcomes.settle.settle", settle_left)
            await take_in(connection, events_of(packed_event(outcomes)), now=now)

    found = [await state_after(timeline, act) for act in (judge_all, settle_packed)]
    assert found[0] == found[1]
    names = {row["id"]: row["external_id"] for row in outstanding}
    assert {names[end.work] for end in left} == JUDGED.keys()


async def state_after(timeline, act) -> list[tuple[str, Any]]:
    """Return all rows after an act, which is rolled back."""
    async with timeline.database.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await act(connection)
        rows = [(row["kind"], row["row"]) for row in await connection.fetch(STATE)]
        await transaction.rollback()
    return rows


async def test_enqueued_work_is_settled_and_keeps_its_key(timeline):
    await timeline.declare(app_with_jobs())
    for key in (None, "k"):
        await timeline.rows("SELECT headway.enqueue('free', '1', key => $1)", key)
    await process(timeline)
    outcomes = completed(await timeline.rows("SELECT * FROM scheduler.work"), timeline.clock.at)
    for _ in range(2):
        await timeline.tell(packed_event(outcomes))
        assert await timeline.value("SELECT count(*) FROM scheduler.work") == 0
        rows = await timeline.rows("SELECT key, input, settled_at FROM scheduler.enqueued")
        assert [tuple(row) for row in rows] == [("k", None, timeline.clock.at)]


@pytest.mark.parametrize("retried_first", [False, True])
async def test_a_later_round_ends_before_or_after_its_start_arrives(timeline, retried_first):
    await timeline.declare(minutely())
    await timeline.tick(minutes=1)
    work, letter = await timeline.dead_letter("a")
    retried = DeadLetterRetried(
        dead_letter=letter, work=work, round=2, manifest_id=await timeline.id_of("a"),
        group="any", resolved_at=timeline.clock.at,
    )  # fmt: skip
    row = {"id": work, "round": 2, "manifest_id": retried.manifest_id}
    ended = packed_event(completed([row], timeline.clock.at))
    for data in (retried, ended) if retried_first else (ended, retried):
        await timeline.tell(data)
    manifest = await timeline.manifest("a")
    assert (manifest["success_number"], manifest["blocked_by"]) == (1, None)
    assert manifest["wake_at"] is not None
    assert await timeline.under_way("a") == []


async def test_the_intake_of_the_scheduler_receives_it(world):
    await world.provision()
    await world.scheduler(minutely(manual(), group="ops"))
    async with world.client("ada") as client:
        work = (await client.trigger("a")).work
    [row] = await world.rows("SELECT * FROM scheduler.work WHERE id = $1", work)
    [message] = events_of(packed_event(completed([row], utc_now())))
    assert isinstance(await publish(world.broker, subjects.settled("ops"), encode(message)), Stored)
    await world.until("SELECT count(*) = 0 FROM scheduler.work")
    assert await world.value("SELECT success_number FROM scheduler.manifest") == 1


@pytest.mark.parametrize("parents", [["first", None], []])
def test_each_piece_of_work_continues_its_own_trace(monkeypatch, parents):
    module, seen = "headway_scheduler.outcomes.settle", []

    def begin(_, *, parent, outcome):
        seen.append((parent, outcome))
        return nullcontext()

    monkeypatch.setattr(f"{module}.span", begin)
    monkeypatch.setattr(f"{module}.traceparent", lambda: "here")
    rows = [{"id": new_id(), "round": 1, "manifest_id": manifest} for manifest in (new_id(), None)]
    packed = packed_event(completed(rows, START), parents)
    with ExitStack() as traces:
        successes = _begin_spans(traces, events_of(packed))
    assert seen == [(parent, "completed") for parent in parents or [None, None]]
    assert successes == {rows[0]["manifest_id"]: "here"}


def test_lists_of_different_lengths_are_malformed():
    packed = packed_event(completed([{"id": new_id(), "round": 1, "manifest_id": None}] * 2, START))
    body = msgspec.json.decode(encode(events_of(packed)))
    for name in ("round", "traceparents"):
        broken = {**body, "data": {**body["data"], name: [None if name != "round" else 1]}}
        with pytest.raises(Malformed, match="different lengths"):
            decode(msgspec.json.encode(broken))
    assert decode(encode(events_of(packed)))[0].data == packed
