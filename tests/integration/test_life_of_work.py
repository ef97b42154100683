"""The life of work on real servers, from due time to settled outcome."""

import asyncio
import threading
from datetime import timedelta

import msgspec
import nats
import pytest
from headway import App, Fatal, every, manual, retry
from headway.define.inputs import schema_id
from support.invariants import check_invariants


async def test_a_schedule_fires_and_its_outcome_is_in_the_tables(world):
    app = App("test")

    @app.job("greet", group="ops")
    @every(seconds=1)
    async def greet(ctx):
        return {"manifest": ctx.manifest, "attempt": ctx.attempt}

    await world.serve(app)
    scheduler = await world.scheduler(app)
    await world.until("SELECT count(*) >= 2 FROM dispatcher.run WHERE state = 'completed'")
    await scheduler.end_pass("tick")
    await world.until_settled(at_least=2)
    rows = await world.rows("SELECT * FROM dispatcher.run")
    for row in rows:
        assert row["output"] == {"manifest": "greet-every", "attempt": 1}
        assert row["created_at"] <= row["started_at"] <= row["finished_at"]
        assert row["due_at"] <= row["started_at"]
    works = await world.rows("SELECT * FROM dispatcher.work_queue")
    assert {row["run_id"]: row["id"] for row in works} == {
        row["run_id"]: row["work_id"] for row in rows
    }, "each names the other"
    [manifest] = await world.rows("SELECT * FROM scheduler.manifest")
    for work in works:
        assert (work["manifest_id"], work["job"], work["group_name"]) == (
            *(manifest["id"], "greet", "ops"),
        )
    assert manifest["success_number"] == len(rows)
    assert manifest["last_outcome"] == "completed"
    assert await world.value("SELECT bool_and(outcome = 'completed') FROM scheduler.occurrence")
    await check_invariants(world.database)


class Order(msgspec.Struct):
    number: int
    lines: list[str]


async def test_plain_functions_run_in_threads_and_typed_inputs_arrive_typed(world):
    app = App("test")
    seen = []

    @app.job("pack")
    def pack(ctx, order: Order):
        seen.append((threading.current_thread() is threading.main_thread(), order))
        return order.lines

    app.schedule("pack-1", job=pack, when=every(seconds=1), input=Order(1, ["a", "b"]))
    await world.serve(app)
    scheduler = await world.scheduler(app)
    await world.until("SELECT count(*) >= 1 FROM dispatcher.run WHERE state = 'completed'")
    await scheduler.end_pass("tick")
    await world.until_settled()
    assert seen[0] == (False, Order(1, ["a", "b"]))
    assert await world.value("SELECT output FROM dispatcher.run LIMIT 1") == ["a", "b"]
    await check_invariants(world.database)


async def test_event_table_and_order_name_the_schema_of_the_input(world, client, nats_url):
    app = App("test")

    @app.job("pack")
    async def pack(ctx, order: Order): ...

    @app.job("any")
    async def takes_any(ctx, given): ...

    app.schedule("pack-1", job=pack, when=manual(), input=Order(1, ["a"]))
    schemas = {job.name: schema_id(job.input_schema) for job in app.definitions().jobs}
    assert schemas["pack"].startswith("sha256:")
    connection = await nats.connect(nats_url)
    orders = await connection.subscribe("headway.run.>")
    await world.dispatcher()
    await world.scheduler(app)
    await world.worker(app)
    await client.trigger("pack-1")
    await client.enqueue("pack", {"number": 2, "lines": []})
    await client.enqueue("any", 7)
    found = [msgspec.json.decode((await orders.next_msg(timeout=20)).data) for _ in range(3)]
    await world.until_settled(at_least=3)
    await connection.close()
    expected = [("any", None), ("pack", schemas["pack"]), ("pack", schemas["pack"])]
    ordered = [message["data"] for message in found]
    assert (
        sorted((order["job"], order["runs"][0].get("input_schema")) for order in ordered)
        == expected
    )
    stored = "SELECT job, input_schema FROM dispatcher.work_queue ORDER BY job"
    assert [tuple(row) for row in await world.rows(stored)] == expected


async def test_a_failure_is_tried_again_and_then_becomes_a_dead_letter_that_blocks(world):
    app = App("test")

    @app.job("broken")
    @every(seconds=1)
    @retry(attempts=2, interval=0.05, jitter=0)
    async def broken(ctx):
        raise ValueError(f"attempt {ctx.attempt}", "\x00\ud800")

    await world.serve(app)
    await world.scheduler(app)
    await world.until("SELECT count(*) FROM dispatcher.dead_letter")
    await world.until("SELECT blocked_by IS NOT NULL AND wake_at IS NULL FROM scheduler.manifest")
    runs = await world.rows("SELECT attempt, failure FROM dispatcher.run ORDER BY attempt")
    assert [row["attempt"] for row in runs] == [1, 2]
    assert runs[1]["failure"]["kind"] == "ValueError"
    assert runs[1]["failure"]["message"].startswith("('attempt 2'")
    assert "raise ValueError" in runs[1]["failure"]["stack"]
    letter = (await world.rows("SELECT * FROM dispatcher.dead_letter"))[0]
    assert (letter["reason"], letter["attempts"], letter["state"]) == (
        "attempts_exhausted",
        2,
        "awaiting",
    )
    assert await world.value("SELECT blocked_by FROM scheduler.manifest") == letter["id"]
    await check_invariants(world.database)


def give_up(ctx):
    raise Fatal("no use")


FATAL = {
    "fatal": (give_up, "Fatal"),
    "not-json": (lambda ctx: object(), "output_not_json"),
    "too-large": (lambda ctx: "x" * 300_000, "output_too_large"),
    "nul": (lambda ctx: "a\x00b", "output_not_json"),
}


async def test_a_fatal_failure_is_dead_lettered_at_once(world):
    app = App("test")
    for name, (body, _) in FATAL.items():
        app.job(name)(every(seconds=1)(body))
    await world.serve(app)
    await world.scheduler(app)
    await world.until("SELECT count(*) = $1 FROM dispatcher.dead_letter", len(FATAL))
    rows = await world.rows("SELECT job, failure FROM dispatcher.run ORDER BY job")
    assert [(row["job"], row["failure"]["kind"]) for row in rows] == sorted(
        (name, kind) for name, (_, kind) in FATAL.items()
    )
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_an_input_that_no_longer_fits_is_reported_as_such(world):
    old, new = App("test"), App("test")

    @old.job("pack")
    def pack(ctx, order: dict): ...

    @new.job("pack")
    def pack_orders(ctx, order: Order): ...

    old.schedule("pack-1", job=pack, when=every(seconds=1), input={"number": "seven"})
    await world.serve(new)
    await world.scheduler(old)
    await world.until("SELECT count(*) FROM dispatcher.dead_letter")
    failure = await world.value("SELECT failure FROM dispatcher.run")
    assert failure["kind"] == "invalid_input"
    assert "$.number" in failure["message"]


async def test_work_without_a_worker_waits_with_that_reason_and_holds_no_slot(world):
    app, other = App("test"), App("other")

    @app.job("lonely")
    @every(seconds=1)
    async def lonely(ctx): ...

    @other.job("served")
    async def served(ctx): ...

    await world.serve(other)
    await world.scheduler(app)
    await world.until("SELECT count(*) FROM dispatcher.waiting WHERE reason = 'no_worker'")
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 0
    await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")


async def test_an_overlap_is_skipped_and_recorded(world):
    app = App("test")
    release = asyncio.Event()

    @app.job("slow")
    @every(seconds=1)
    async def slow(ctx):
        await release.wait()

    await world.serve(app)
    scheduler = await world.scheduler(app)
    await world.until(
        "SELECT next_due_at < clock_timestamp() - interval '2 s' FROM scheduler.manifest"
    )
    assert await world.value("SELECT count(*) FROM dispatcher.work_queue") == 1
    await scheduler.end_pass("tick")
    release.set()
    await world.until_settled()
    skipped = await world.rows("SELECT * FROM scheduler.occurrence WHERE decision = 'skipped'")
    assert [row["reason"] for row in skipped] == ["still_outstanding"]
    assert skipped[0]["last_due_at"] - skipped[0]["first_due_at"] >= timedelta(seconds=2)
    await check_invariants(world.database)


async def test_a_body_that_takes_too_long_is_stopped(world):
    app = App("test")

    @app.job("endless", timeout=0.3)
    @every(seconds=1)
    @retry(attempts=1)
    async def endless(ctx):
        await asyncio.Event().wait()

    await world.serve(app)
    await world.scheduler(app)
    await world.until("SELECT count(*) FROM dispatcher.dead_letter")
    failure = await world.value("SELECT failure FROM dispatcher.run")
    assert failure["kind"] == "timed_out"
    await check_invariants(world.database)


async def test_a_worker_that_drains_hands_its_runs_back_uncounted(world):
    app = App("test")
    begun = asyncio.Event()

    @app.job("long")
    @every(seconds=1)
    @retry(attempts=1)
    async def long(ctx):
        if not begun.is_set():
            begun.set()
            await asyncio.Event().wait()
        return ctx.attempt

    await world.serve(app, drain_seconds=0.1)
    scheduler = await world.scheduler(app)
    await begun.wait()
    await scheduler.end_pass("tick")
    await world.stop_workers()
    assert await world.value("SELECT count(*) FROM dispatcher.worker") == 0
    await world.worker(app)
    await world.until_settled()
    rows = await world.rows(
        "SELECT state, attempt, failure FROM dispatcher.run ORDER BY created_at"
    )
    assert [(row["state"], row["attempt"]) for row in rows] == [("failed", 1), ("completed", 1)]
    assert rows[0]["failure"]["kind"] == "worker_stopped"
    await check_invariants(world.database)
