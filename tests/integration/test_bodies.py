"""Bodies that misbehave: each run ends and does not affect other runs."""

import asyncio
import sys
import threading

import msgspec
import pytest
from headway import App, retry
from headway.worker import lease_runner, runtime
from headway_contract import subjects
from headway_jetstream_kit.provisioning import stream_info
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.work_events import queue, until_run
from support.world import until

pytestmark = pytest.mark.thorough


def app_with(body, **options) -> App:
    app = App("test")
    app.job("job", **options)(when_made_due()(retry(attempts=1)(body)))
    return app


async def run_once(world, app: App, **settings) -> dict:
    await world.dispatcher(**settings)
    await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE finished_at IS NOT NULL")
    row = (await world.rows("SELECT * FROM dispatcher.run"))[0]
    await check_invariants(world.database)
    return row


def empty_next(ctx):
    return next(iter([]))


def exits(ctx):
    sys.exit(3)


async def exits_too(ctx):
    sys.exit(3)


async def gives_up(ctx):
    raise asyncio.CancelledError


class Mute(Exception):
    def __str__(self):
        raise SystemExit(3)

    @property
    def __notes__(self):
        raise self


async def mute(ctx):
    raise Mute


class Half(msgspec.Struct):
    whole: int


async def half(ctx):
    output = Half(1)
    del output.whole
    return output


def forgotten(ctx):
    return rubbish(ctx)


async def forgotten_inside(ctx):
    return {"pages": [rubbish(ctx)]}


def nothing_of_json(ctx):
    return object()


async def rubbish(ctx):
    return msgspec.Raw(b"{rubbish")


FORGOTTEN = "the body returned the coroutine {}(), which never ran: forgot await?"

NOT_JSON = "the output holds a value of type object, which is not JSON"


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (mute, "Mute", "its text is not available: SystemExit"),
        (half, "output_not_json", "Struct field 'whole' is unset"),
        (rubbish, "output_not_json", "JSON is malformed: expected '\"' (byte 1)"),
        (forgotten, "output_not_json", FORGOTTEN.format("rubbish")),
        (forgotten_inside, "output_not_json", FORGOTTEN.format("rubbish")),
        (nothing_of_json, "output_not_json", NOT_JSON),
        (empty_next, "RuntimeError", "StopIteration()"),
        (exits, "RuntimeError", "SystemExit(3)"),
        (exits_too, "RuntimeError", "SystemExit: 3"),
        (gives_up, "Cancelled", ""),
    ],
    ids=[
        "mute",
        "half-an-output",
        "rubbish",
        "forgotten-await",
        "forgotten-await-of-a-part",
        "not-json",
        "stop-iteration",
        "plain-exit",
        "async-exit",
        "cancelled-by-itself",
    ],
)
async def test_every_exception_of_a_body_is_a_failure(world, body, kind, message):
    row = await run_once(world, app_with(body))
    assert (row["failure"]["kind"], row["failure"]["message"]) == (kind, message)


class Country(msgspec.Struct):
    code: str

    def __post_init__(self):
        raise LookupError(f"no country {self.code}")


async def test_an_exception_of_the_input_type_is_a_failure(world):
    app = App("test")

    @app.job("job", group="ops")
    async def job(ctx, country: Country): ...

    await world.dispatcher(orphan_timeout_seconds=600)
    await world.worker(app)
    await queue(world, input={"code": "XX"})
    failure = (await until_run(world, "failed"))["failure"]
    assert (failure["kind"], failure["message"]) == ("LookupError", "no country XX")


async def test_a_plain_function_fails_if_no_thread_can_start(world, monkeypatch):
    def full(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(lease_runner, "run_in_thread", full)
    row = await run_once(world, app_with(lambda ctx: None), orphan_timeout_seconds=600)
    assert row["failure"]["message"] == "can't start new thread"


async def test_a_plain_function_that_ignores_its_timeout_times_out_after_its_grace(world):
    release = threading.Event()
    app = app_with(lambda ctx: release.wait(60), timeout=0.2, cancel_grace=0.3)
    row = await run_once(world, app)
    release.set()
    assert row["failure"]["kind"] == "timed_out"


async def test_an_async_body_that_ignores_its_cancellation_times_out(world):
    release = asyncio.Event()

    async def stubborn(ctx):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    row = await run_once(world, app_with(stubborn, timeout=0.2, cancel_grace=0.3))
    release.set()
    assert row["failure"]["kind"] == "timed_out"


async def test_a_run_that_its_worker_cannot_end_is_taken_away(world, monkeypatch):
    """The worker sends heartbeats, but its run is past its timeout and grace."""
    monkeypatch.setattr(lease_runner, "monotonic", lambda: 0.0)
    monkeypatch.setattr("headway_dispatcher.gate.orders._LENIENCE", 0.3)
    await world.value(
        "CREATE OR REPLACE FUNCTION dispatcher.max_run_seconds(terms jsonb)"
        " RETURNS double precision LANGUAGE sql IMMUTABLE AS"
        " 'SELECT 0.2::double precision + 0.1::double precision + 0.3::double precision'"
    )
    release = asyncio.Event()

    async def endless(ctx):
        await release.wait()

    app = app_with(endless, timeout=0.2, cancel_grace=0.1)
    row = await run_once(world, app, heartbeat_seconds=0.5, orphan_timeout_seconds=2)
    release.set()
    assert row["failure"]["kind"] == "timed_out"
    assert row["failure"]["message"] == "the run took longer than its timeout and its grace"


async def order_is_gone(world) -> bool:
    info = await stream_info(world.broker, subjects.RUNS_STREAM)
    return info["state"]["messages"] == 0


async def test_an_order_that_is_delivered_again_is_not_run_again(world, monkeypatch):
    """The ack of a claimed order is lost; the same process gets the order a second time."""
    ran = []

    async def count(ctx):
        ran.append(ctx.run)

    async def no_ack(broker, messages):
        monkeypatch.undo()
        for message in messages:
            await runtime.nak(broker, message, delay=0.1)

    monkeypatch.setattr(runtime, "ack", no_ack)
    await run_once(world, app_with(count))
    await until(lambda: order_is_gone(world), within=10, what="the second delivery is acknowledged")
    assert len(ran) == 1


async def test_an_order_that_comes_again_during_its_claim_is_not_run_twice(world, monkeypatch):
    """Deliver the order and its redelivery together, as after a pause of the process."""
    ran = []

    async def count(ctx):
        ran.append(ctx.run)

    async def twice(self, batch):
        return await fetch(self, batch) * 2

    fetch = runtime.Puller.fetch
    monkeypatch.setattr(runtime.Puller, "fetch", twice)
    await run_once(world, app_with(count))
    await until(lambda: order_is_gone(world), within=10, what="the order is acknowledged")
    assert len(ran) == 1
    await check_invariants(world.database)


async def test_a_full_job_does_not_starve_the_others(world):
    app, only_slow, only_quick = App("test"), App("test"), App("test")
    release = asyncio.Event()

    async def slow(ctx, number: int):
        await release.wait()

    async def quick(ctx): ...

    for declaring in (app, only_slow):
        declaring.job("slow", group="slow")(slow)
    for declaring in (app, only_quick):
        declaring.job("quick", group="quick")(quick)
    for number in range(250):
        app.schedule(f"slow-{number}", job="slow", when=when_made_due(), input=number)
    app.schedule("quick", job="quick", when=when_made_due())
    await world.serve(only_slow, worker_slots=1)
    await world.worker(only_quick, worker_slots=5)
    await world.until("SELECT count(*) = 2 FROM dispatcher.worker")
    await world.fire(app)
    await world.until(
        "SELECT count(*) FROM dispatcher.run WHERE job = 'quick' AND state = 'completed'"
    )
    await world.until("SELECT count(*) FROM dispatcher.waiting WHERE reason = 'workers_full'")
    release.set()
