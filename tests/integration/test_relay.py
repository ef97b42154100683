"""The outbox and its relay: no message is lost, and duplicates are harmless."""

import asyncio
import contextlib
from functools import partial

import pytest
from headway import App, every
from headway_clock import new_id
from headway_contract import subjects
from headway_dispatcher.runs.orders import rebuild_orders
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import OUTBOX as ORDERS
from headway_jetstream_kit import BrokerUnavailable, Stored
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish
from headway_relay import Handover, OutboxMessage, Relay
from headway_relay import relay as relay_module
from headway_scheduler.fire.tick import Tick
from headway_scheduler.store import OUTBOX
from headway_service_kit.passes import SAFETY_POLL, Pass
from msgspec import structs
from support.cadences import when_made_due
from support.healing import purge
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.world import until


async def add(world, *messages: OutboxMessage) -> None:
    async with world.database.transaction() as connection:
        await OUTBOX.add(connection, messages)


def message(number: int, subject: str = "headway.work.ops") -> OutboxMessage:
    return OutboxMessage(message_id=f"m{number}", subject=subject, body=b"{}")


async def stored(world, stream: str = subjects.WORK_STREAM) -> int:
    info = await stream_info(world.broker, stream)
    assert info is not None
    return info["state"]["messages"]


async def backlog(world) -> int:
    async with world.database.acquire() as connection:
        return await connection.fetchval("SELECT count(*) FROM scheduler.outbox")


async def test_acknowledged_messages_are_deleted(world):
    await world.provision()
    await add(world, *(message(number) for number in range(1200)))
    relay = Relay(world.database, world.broker, OUTBOX)
    rests = [await relay.run_once() for _ in range(3)]
    assert rests == [0.0, 0.0, None], "a full batch means that there is more"
    assert await backlog(world) == 0
    assert await stored(world) == 1200


async def test_a_crash_between_publish_and_delete_is_harmless(world, monkeypatch):
    await world.provision()
    await add(world, *(message(number) for number in range(10)))

    def crash(_answer):
        raise SystemError("the process is gone")

    relay = Relay(world.database, world.broker, OUTBOX)
    with monkeypatch.context() as patch:
        patch.setattr(relay_module, "_is_too_large", crash)
        with pytest.raises(SystemError):
            await relay.run_once()
    assert (await backlog(world), await stored(world)) == (10, 10)
    await Relay(world.database, world.broker, OUTBOX).run_once()
    assert (await backlog(world), await stored(world)) == (0, 10)


async def test_work_announced_twice_long_after_the_broker_forgot_is_taken_in_once(
    world, monkeypatch
):
    """The dedupe window is an optimisation; the unique key guarantees it."""
    app = App("test")

    @app.job("greet")
    @every(seconds=1)
    async def greet(ctx): ...

    await world.provision()
    await world.declare(app)
    await world.make_due()
    tick = Tick(world.database, holder="me", max_entries=200, relay=Handover())
    assert (await tick.run_once()).fired == 1
    body = await world.value("SELECT body FROM scheduler.outbox WHERE message_id NOT LIKE 'group%'")
    for copy in range(3):
        await add(
            world, OutboxMessage(message_id=f"copy-{copy}", subject="headway.work.greet", body=body)
        )
    await world.serve(app)
    await world.scheduler(None, tick="off")
    await world.until_settled()
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 1
    await check_invariants(world.database)


async def test_a_message_without_a_stream_stays_and_is_named(world):
    await world.provision()
    await add(world, message(1), message(2, subject="nowhere.at.all"))
    relay = Relay(world.database, world.broker, OUTBOX)
    assert await relay.run_once() == 0.5, (
        "the other message was published, so the relay retries soon"
    )
    assert (await backlog(world), await stored(world)) == (1, 1)
    with pytest.raises(BrokerUnavailable, match="none of 1 messages was published"):
        await relay.run_once()


async def test_an_order_that_the_broker_does_not_take_is_no_failure_of_its_job(world):
    """However often the publish fails, the order stays in the outbox and its run waits."""
    app = App("test")

    @app.job("greet")
    @when_made_due()
    async def greet(ctx): ...

    dispatcher = await world.dispatcher()
    # Stop these passes, so that only the test publishes orders and makes room in the stream.
    for name in ("relay", "tidying", "orders"):
        await dispatcher.end_pass(name)
    settings = DispatcherSettings(database_url="", nats_url="")
    rebuild = partial(rebuild_orders, settings)
    relay = Relay(world.database, world.broker, ORDERS, rebuild=rebuild)
    await fill_runs(world)
    await world.worker(app)
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.outbox WHERE subject LIKE 'headway.run.%'")
    for _ in range(7):
        with pytest.raises(BrokerUnavailable, match="none of 1 messages was published"):
            await relay.run_once()
    [run] = await world.rows("SELECT state, attempt, failure FROM dispatcher.run")
    assert tuple(run) == ("pending", 1, None)
    work = "SELECT state, runs, attempts FROM dispatcher.work_queue"
    assert [tuple(row) for row in await world.rows(work)] == [("dispatched", 1, 0)]
    await purge(world, subjects.RUNS_STREAM)
    await relay.run_once()
    await world.until("SELECT outcome = 'completed' FROM dispatcher.work_queue")
    assert [tuple(row) for row in await world.rows(work)] == [("settled", 1, 1)]
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 1
    assert await world.value("SELECT count(*) FROM dispatcher.dead_letter") == 0
    await relay.run_once()


async def fill_runs(world) -> None:
    """Limit the stream to one order, and fill it with an order of another job."""
    info = await world.broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}")
    config = info["config"] | {"max_msgs": 1}
    await world.broker.api(f"STREAM.UPDATE.{subjects.RUNS_STREAM}", config)
    stored = await publish(world.broker, subjects.order("other", new_id()), b"[]")
    assert isinstance(stored, Stored)


@pytest.mark.parametrize("limit", ["of the broker", "of the stream"])
@pytest.mark.parametrize("others", first_in_each_tier([1, 0]))
async def test_a_message_that_is_too_large_is_put_aside(world, caplog, limit, others):
    await world.provision()
    huge = OutboxMessage(message_id="huge", subject="headway.work.ops", body=b"x" * 2**20)
    if limit == "of the stream":
        info = await world.broker.api(f"STREAM.INFO.{subjects.WORK_STREAM}")
        config = info["config"] | {"max_msg_size": 1000}
        await world.broker.api(f"STREAM.UPDATE.{subjects.WORK_STREAM}", config)
        huge = structs.replace(huge, body=b"x" * 2000)
    await add(world, huge, *(message(number) for number in range(others)))
    assert await Relay(world.database, world.broker, OUTBOX).run_once() is None
    assert (await backlog(world), await stored(world)) == (0, others)
    [line] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"first_bytes={len(huge.body)} first_subject=headway.work.ops" in line
    rejected = (await world.rows("SELECT * FROM scheduler.rejected"))[0]
    assert (rejected["body"], rejected["reason"]) == (huge.body, "too large to be published")


async def test_an_order_that_is_still_stored_counts_as_there(world):
    await world.provision()
    subject = "headway.run.job.lease"
    await add(world, message(1, subject), message(2, subject))
    await Relay(world.database, world.broker, OUTBOX).run_once()
    assert (await backlog(world), await stored(world, subjects.RUNS_STREAM)) == (0, 1)


async def test_two_relays_share_the_rows(world):
    await world.provision()
    await add(world, *(message(number) for number in range(100)))
    first, second = (Relay(world.database, world.broker, OUTBOX, batch=50) for _ in range(2))
    await asyncio.gather(first.run_once(), second.run_once())
    assert (await backlog(world), await stored(world)) == (0, 100)


async def test_a_row_that_commits_late_is_not_passed_over(world):
    """Ids are assigned before the commit, so a lower id may appear after a higher one."""
    await world.provision()
    relay = Relay(world.database, world.broker, OUTBOX)
    async with world.database.transaction() as connection:
        await OUTBOX.add(connection, [message(1)])
        await add(world, message(2))
        await relay.run_once()
        assert await stored(world) == 1
    await relay.run_once()
    assert (await backlog(world), await stored(world)) == (0, 2)


async def test_handed_messages_are_published_and_deleted_without_reading_the_outbox(world):
    await world.provision()
    await add(world, message(1), message(2))
    handover = Handover()
    relay = Relay(world.database, world.broker, OUTBOX, handover)
    handover.hand([message(1)])
    assert await relay.run_once() == relay_module._DELETED_AFTER
    assert (await backlog(world), await stored(world)) == (2, 1), "rows are deleted together"
    assert await relay.run_once() is None
    assert (await backlog(world), await stored(world)) == (1, 1), (
        "the other message was not handed over"
    )
    handover.call()
    await relay.run_once()
    assert (await backlog(world), await stored(world)) == (0, 2)


async def test_handed_messages_that_the_broker_refuses_stay_in_the_outbox(world):
    await world.provision()
    await add(world, message(1), message(2, "nobody.listens"))
    handover = Handover()
    relay = Relay(world.database, world.broker, OUTBOX, handover)
    handover.hand([message(1), message(2, "nobody.listens")])
    assert await relay.run_once() == relay_module._RETRY_SECONDS
    assert await world.value("SELECT array_agg(message_id) FROM scheduler.outbox") == ["m2"]


async def test_an_outage_fills_no_memory():
    handover = Handover()
    for number in range(5000):
        handover.hand([message(number)])
    handed, is_called = handover.take()
    assert len(handed) <= 1000
    assert is_called


class SteadyLoad(Handover):
    """A handover that always has a message, as in a busy process."""

    def take(self) -> tuple[list[OutboxMessage], bool]:
        self.hand([structs.replace(message(0), message_id=new_id().hex)])
        return super().take()


@contextlib.asynccontextmanager
async def running(relay: Relay, handover: Handover):
    """Run the relay as a service does."""
    task = asyncio.create_task(Pass("relay", relay.run_once, handover).keep_running())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


GONE = "SELECT NOT EXISTS (SELECT FROM scheduler.outbox WHERE message_id = $1)"


async def test_a_row_of_a_killed_peer_is_published_under_a_steady_load(world, monkeypatch):
    assert SAFETY_POLL == 5
    poll = 1.0
    monkeypatch.setattr(f"{Relay.__module__}.SAFETY_POLL", poll)
    await world.provision()
    handover = SteadyLoad()
    relay = Relay(world.database, world.broker, OUTBOX, handover)
    async with running(relay, handover):
        # The peer was killed after its commit, before it published.
        await add(world, message(1))
        # A row is left behind after a second, and may be young at the first look.
        await world.until(GONE, "m1", within=3 * poll)
        # The relay polls repeatedly, not only at its start.
        await add(world, message(2))
        await world.until(GONE, "m2", within=3 * poll)


async def test_a_handed_row_that_was_not_taken_is_tried_again_under_a_steady_load(world, caplog):
    """The retry does not wait for the safety poll and does not count as a broker outage."""
    await world.provision()
    info = await world.broker.api(f"STREAM.INFO.{subjects.WORK_STREAM}")
    handover = SteadyLoad()
    relay = Relay(world.database, world.broker, OUTBOX, handover)
    async with running(relay, handover):
        await add(world, message(1, "headway.later.ops"))
        handover.hand([message(1, "headway.later.ops")])
        await until(
            lambda: _logged(caplog, "messages not published failed=1 batch=1"),
            within=4,
            what="tried",
        )
        more = info["config"] | {"subjects": [*info["config"]["subjects"], "headway.later.ops"]}
        await world.broker.api(f"STREAM.UPDATE.{subjects.WORK_STREAM}", more)
        await world.until(GONE, "m1", within=4)
    assert not await _logged(caplog, "pass failed")


async def _logged(caplog, words: str) -> bool:
    return any(words in record.getMessage() for record in caplog.records)


async def test_more_than_can_be_handed_over_is_read_from_the_outbox_under_a_steady_load(world):
    await world.provision()
    await add(world, *(message(number) for number in range(1200)))
    handover = SteadyLoad()
    relay = Relay(world.database, world.broker, OUTBOX, handover)
    handover.call()
    for _ in range(3):
        await relay.run_once()
    assert await backlog(world) == 0
