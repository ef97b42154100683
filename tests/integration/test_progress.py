"""Progress and logs: live, bounded, and harmless if lost, duplicated or forged."""

import asyncio
import logging
import threading
from uuid import uuid4

import msgspec
import pytest
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.worker_protocol import LINES_LIMIT, LogLine, Progress
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.work_events import app_with, queue, until_run


class PublishedProgress:
    """Progress messages that a worker publishes."""

    def __init__(self) -> None:
        self.messages: list[Progress] = []

    async def record(self, message) -> None:
        self.messages.append(msgspec.json.decode(message.data, type=Progress))


@pytest.fixture
async def published(world) -> PublishedProgress:
    published = PublishedProgress()
    await world.broker.client.subscribe(subjects.PROGRESS_SUBJECTS, cb=published.record)
    return published


async def log_of(world, run) -> list:
    return await world.rows(
        "SELECT * FROM dispatcher.run_log WHERE run_id = $1 ORDER BY number", run
    )


async def test_progress_is_seen_while_the_run_runs_and_lines_keep_their_order(world):
    release, today = asyncio.Event(), utc_now().date()

    async def job(ctx):
        ctx.progress(12.5, "table 1 of 8")
        ctx.log.info("opened %s", "sessions", rows=7, at=today)
        await release.wait()
        ctx.progress(message="done")
        ctx.log.warning("closing")

    await world.serve(app_with(job))
    await queue(world)
    progress = await world.until("SELECT progress FROM dispatcher.run_report")
    assert (progress["percent"], progress["message"]) == (12.5, "table 1 of 8")
    assert await world.value("SELECT state FROM dispatcher.run") == "in_progress"
    await world.until("SELECT count(*) FROM dispatcher.run_log")
    release.set()
    row = await until_run(world, "completed")
    await world.until("SELECT count(*) = 2 FROM dispatcher.run_log")
    lines = await log_of(world, row["run_id"])
    assert [(line["level"], line["message"]) for line in lines] == [
        ("info", "opened sessions"),
        ("warning", "closing"),
    ]
    assert lines[0]["fields"] == {"rows": 7, "at": today.isoformat()}
    progress = await world.value("SELECT progress FROM dispatcher.run_report")
    assert (progress["percent"], progress["message"]) == (12.5, "done")
    await check_invariants(world.database)


async def test_the_last_log_lines_come_before_the_outcome(world, published):
    """Progress of a short run is published before its outcome is stored."""

    async def job(ctx):
        ctx.log.error("about to fail")
        raise ValueError("boom")

    await world.serve(app_with(job))
    await queue(world)
    row = await until_run(world, "failed")
    await world.until("SELECT count(*) FROM dispatcher.run_log")
    assert [line["message"] for line in await log_of(world, row["run_id"])] == ["about to fail"]
    assert len(published.messages) == 1


async def test_a_flood_is_coalesced_bounded_and_counted(world, published):
    def job(ctx):
        for number in range(LINES_LIMIT + 500):
            ctx.log.info("line", number=number)
            ctx.progress(number / 15)
        ctx.log.info("x" * 100_000)

    await world.serve(app_with(job))
    await queue(world)
    await until_run(world, "completed")
    # The first lines carry the number of dropped lines; the other lines follow.
    await world.until(
        "SELECT (SELECT count(*) FROM dispatcher.run_log) >= $1 AND log_dropped = 501"
        " FROM dispatcher.run_report",
        LINES_LIMIT,
    )
    assert await world.value("SELECT count(*) FROM dispatcher.run_log") == LINES_LIMIT
    assert len(published.messages) < 50, "far fewer messages than calls"


@pytest.mark.thorough
async def test_long_lines_and_odd_fields_are_cut_and_nothing_fails(world):
    class Odd:
        def __str__(self):
            raise RuntimeError("no")

    def job(ctx):
        ctx.log.info("x" * 10_000)
        ctx.log.info("a\x00b", text="c\x00d")
        ctx.log.info("odd", thing=Odd())
        ctx.log.info("large", data="y" * 10_000)
        try:
            raise KeyError("k")
        except KeyError:
            ctx.log.exception("caught")
        ctx.progress(500)

    await world.serve(app_with(job))
    await queue(world)
    row = await until_run(world, "completed")
    await world.until("SELECT count(*) = 5 FROM dispatcher.run_log")
    long, nul, odd, large, caught = await log_of(world, row["run_id"])
    assert len(long["message"]) == 4096
    assert nul["message"] == "a\\0b"
    assert all(list(line["fields"]) == ["fields_left_out"] for line in (nul, odd, large))
    assert "KeyError" in caught["fields"]["exception"]
    assert (
        await world.value("SELECT (progress ->> 'percent')::float FROM dispatcher.run_report")
        == 100
    )


@pytest.mark.parametrize("capture", first_in_each_tier([True, False]))
async def test_python_s_logging_is_captured_if_asked_for(world, capture):
    begun = threading.Event()

    def other(ctx, number: int):
        begun.wait(10)
        logging.getLogger("library").warning("number %d", number)
        begun.set()

    await world.serve(app_with(other, capture_logging=capture))
    for number in range(2):
        await queue(world, input=number)
    begun.set()
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.run AS metadata WHERE state = 'completed'"
    )
    if capture:
        await world.until("SELECT count(*) = 2 FROM dispatcher.run_log")
    rows = await world.rows(
        "SELECT work_queue.input, run_log.message FROM dispatcher.run_log"
        " JOIN dispatcher.run AS metadata USING (run_id)"
        " JOIN dispatcher.work_queue ON work_queue.id = metadata.work_id ORDER BY 1"
    )
    expected = [(0, "number 0"), (1, "number 1")] if capture else []
    assert [tuple(row) for row in rows] == expected, "each line is with its own run"


async def test_what_is_late_doubled_reordered_or_forged_does_no_harm(world):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()

    worker = await world.serve(app_with(job), worker_name="w1")
    await queue(world)
    row = await until_run(world, "in_progress")
    [runner] = worker._runners.values()
    order = runner.lease.order

    async def publish_progress(number: int, *, worker: str = "w1", lines=(), **fields) -> None:
        given = {"lease": order.lease, "token": order.token, "run": row["run_id"], "at": utc_now()}
        progress = Progress(number=number, lines=list(lines), **{**given, **fields})
        await world.broker.client.publish(
            subjects.progress(order.lease, worker), msgspec.json.encode(progress)
        )

    def line(number: int, message: str = "said") -> LogLine:
        return LogLine(number=number, at=utc_now(), level="nonsense", message=message)

    await publish_progress(3, percent=30.0, lines=[line(2), line(2)])
    for _ in range(2):
        await publish_progress(2, percent=20.0, lines=[line(1), line(LINES_LIMIT + 1)])
    await publish_progress(9, percent=90.0, token="guess")
    await publish_progress(9, percent=90.0, worker="w2")
    await publish_progress(9, percent=90.0, run=uuid4())
    await publish_progress(9, percent=90.0, lease=uuid4())
    await world.broker.client.publish(subjects.progress(order.lease, "w1"), b"rubbish")
    await world.broker.client.publish("headway.progress.no-uuid.w1", b"{}")
    await publish_progress(4, percent=40.0)
    await world.until("SELECT (progress ->> 'percent')::float = 40 FROM dispatcher.run_report")
    await world.until("SELECT count(*) = 2 FROM dispatcher.run_log")
    assert await world.value("SELECT log_dropped FROM dispatcher.run_report") == 1
    release.set()
    await until_run(world, "completed")
    await world.value("UPDATE dispatcher.lease SET ended_at = ended_at - interval '1 h'")
    await publish_progress(10, percent=99.0)
    await world.broker.client.flush()
    await publish_progress(11, percent=98.0, run=uuid4())
    await queue(world)
    await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'completed'")
    assert (
        await world.value(
            "SELECT (progress ->> 'percent')::float FROM dispatcher.run_report WHERE run_id = $1",
            row["run_id"],
        )
        == 40
    )
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_lease_over_its_allowance_is_cut_off_with_one_line_of_log(world, caplog):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()

    worker = await world.serve(app_with(job), worker_name="w1")
    await queue(world)
    row = await until_run(world, "in_progress")
    [runner] = worker._runners.values()
    order = runner.lease.order
    progress = Progress(
        lease=order.lease,
        token=order.token,
        run=row["run_id"],
        number=1,
        at=utc_now(),
        percent=1.0,
    )
    flood = 5_000
    for number in range(1, flood + 1):
        body = msgspec.json.encode(msgspec.structs.replace(progress, number=number))
        await world.broker.client.publish(subjects.progress(order.lease, "w1"), body)
        await world.broker.client.publish(f"headway.progress.rubbish.{number}", b"")
    await world.broker.client.flush()
    await world.until("SELECT (progress ->> 'number')::int > 500 FROM dispatcher.run_report")
    # Every message before this answer was read.
    await world.broker.client.request(f"{subjects.DISPATCHER_CONTROL}.settings", b"{}", timeout=5)
    kept = await world.value("SELECT (progress ->> 'number')::int FROM dispatcher.run_report")
    assert kept < flood
    dropped = [
        record for record in caplog.records if record.name == "headway_dispatcher.runs.progress"
    ]
    assert {record.msg.event for record in dropped} == {
        "progress over the limit",
        "progress unreadable",
    }
    assert len(dropped) == 2
    release.set()
    await until_run(world, "completed")


@pytest.mark.thorough
@pytest.mark.breaks_tables("deletes a run by hand")
async def test_pruned_runs_take_their_lines_along(world):
    async def job(ctx):
        ctx.log.info("said")

    await world.serve(app_with(job))
    await queue(world)
    await world.until("SELECT count(*) FROM dispatcher.run_log")
    await until_run(world, "completed")
    await world.value("DELETE FROM dispatcher.metadata")
    assert await world.value("SELECT count(*) FROM dispatcher.run_log") == 0
