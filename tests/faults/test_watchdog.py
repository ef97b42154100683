"""Connections to NATS that look alive and are dead: made anew, and given up in the end."""

import asyncio
import time

import pytest
import pytest_asyncio
from headway import App, every
from headway.worker import Worker, WorkerSettings
from headway_embedded import NatsServer
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import GIVE_UP_AFTER, PING_SECONDS, RECONNECT_AFTER
from support.apps import ticking
from support.invariants import check_invariants
from support.processes import Processes
from support.proxy import Proxy
from support.servers import needs_embedded
from support.world import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

# Long enough for an answer on a machine that has much else to do.
PING = 0.3
# For what takes some ten seconds, and on a busy machine several times as long.
LONG = 100
# Last message of a server before a connection counts as made.
HANDSHAKE_ENDS = b"PONG"


@pytest_asyncio.fixture
async def proxy(nats_url):
    made = await Proxy(nats_url).start()
    yield made
    await made.stop()


@pytest.fixture
def app():
    return ticking()


async def completed(world) -> int:
    return await world.value("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")


async def goes_on(world, within: float = LONG) -> None:
    """Work completes; what was on its way when a connection died comes again after 30 s."""
    await world.until(
        "SELECT count(*) >= $1 FROM dispatcher.run WHERE state = 'completed'",
        await completed(world) + 2,
        within=within,
    )


def tries_under_way() -> int:
    """How many tasks try to connect."""
    return sum(task.get_coro().__name__ == "_attempt_reconnect" for task in asyncio.all_tasks())


async def settles(world, scheduler) -> None:
    await scheduler.end_pass("tick")
    await world.until_settled(within=LONG)
    await check_invariants(world.database)


def test_the_default_patience_ends_a_process_well_within_a_minute():
    assert PING_SECONDS * (RECONNECT_AFTER + 1) <= 15
    # The worst case: every question takes as long as it may, besides the rest after it.
    assert 4 / 3 * PING_SECONDS * GIVE_UP_AFTER <= 40
    # The answers that may be missing leave room for two new connections.
    assert GIVE_UP_AFTER >= 3 * RECONNECT_AFTER


class TestADeadReader:
    """The client's reader ends, and the client goes on looking connected."""

    async def test_services_and_workers_go_on_by_themselves(self, world, app):
        dispatcher = await world.dispatcher(nats_ping_seconds=PING)
        worker = await world.worker(app, ping_seconds=PING)
        scheduler = await world.scheduler(app, nats_ping_seconds=PING)
        await goes_on(world)
        for broker in (dispatcher.broker, worker._broker, scheduler.broker):
            broker.client._reading_task.cancel()
            await asyncio.wait({broker.client._reading_task})
            assert broker.client.is_connected
            with pytest.raises(BrokerUnavailable, match="reader of the connection has ended"):
                await broker.ping()
        await goes_on(world)
        for broker in (dispatcher.broker, worker._broker, scheduler.broker):
            await broker.ping()
            assert not broker.closed.is_set()
        await settles(world, scheduler)

    async def test_health_tells_it_meanwhile(self, world):
        dispatcher = await world.dispatcher(nats_ping_seconds=60)
        dispatcher.broker.client._reading_task.cancel()

        async def reports_dead_reader():
            status, body = await dispatcher.health.report("/readyz")
            return status == 503 and "the reader of the connection has ended" in body

        await until(reports_dead_reader, within=LONG, what="not ready, because of the reader")


class TestAStalledConnection:
    @pytest.mark.parametrize("direction", ["to_server", "to_client"])
    async def test_another_is_made(self, world, proxy, app, direction):
        world.nats_url = proxy.url
        await world.dispatcher(nats_ping_seconds=PING)
        await world.worker(app, ping_seconds=PING)
        scheduler = await world.scheduler(app, nats_ping_seconds=PING)
        await goes_on(world)
        accepted = proxy.accepted
        proxy.stall(direction)
        await goes_on(world)
        assert proxy.accepted >= accepted + 3, "a new connection for each of the three"
        # Messages in flight when the hole opened come again after the ack wait.
        await settles(world, scheduler)

    async def test_it_is_given_up_if_new_ones_stall_too(self, proxy):
        broker = await Broker.connect(proxy.url, name="test", ping_seconds=PING)
        proxy.stall()
        proxy.stall_after(HANDSHAKE_ENDS)
        async with asyncio.timeout(LONG):
            await broker.closed.wait()
        assert proxy.accepted > 1, "it was tried anew before"
        await broker.close()

    async def test_however_often_it_is_begun_anew_one_try_is_made_at_a_time(self, proxy):
        """Of two, each would take the other's connection away, and look like an outage."""
        broker = await Broker.connect(proxy.url, name="test", ping_seconds=600)
        proxy.stall_after(HANDSHAKE_ENDS)
        for _ in range(4):
            accepted = proxy.accepted
            await broker.client.reconnect()

            async def is_made(accepted=accepted):
                return proxy.accepted > accepted and broker.client.is_connected

            await until(is_made, within=LONG, what="a connection that stalls")
            assert tries_under_way() <= 1
        assert broker.client.failed_connects == 0
        await broker.close()

    async def test_a_service_ends_with_the_reason(self, world, proxy):
        world.nats_url = proxy.url
        dispatcher = await world.dispatcher(nats_ping_seconds=PING)
        proxy.stall_after(HANDSHAKE_ENDS)
        proxy.stall()
        async with asyncio.timeout(LONG):
            with pytest.raises(BrokerUnavailable, match="closed for good"):
                await dispatcher.run_until(asyncio.Event())
        world.services.remove(dispatcher)

    @pytest.mark.long
    async def test_a_worker_ends_too_and_waits_for_no_run(self, world, proxy):
        app = App("test")
        begun = asyncio.Event()

        @app.job("endless", group="ops")
        @every(seconds=1)
        async def endless(ctx):
            begun.set()
            await asyncio.Event().wait()

        await world.dispatcher()
        broker = await Broker.connect(proxy.url, name="worker", ping_seconds=PING)
        settings = WorkerSettings(heartbeat_seconds=0.2, drain_seconds=10 * LONG)
        worker = Worker(app, broker, settings)
        running = asyncio.create_task(worker.run(asyncio.Event()))
        await world.scheduler(app)
        async with asyncio.timeout(LONG):
            await begun.wait()
        proxy.stall_after(HANDSHAKE_ENDS)
        proxy.stall()
        async with asyncio.timeout(LONG):  # a drain alone would take ten times as long
            with pytest.raises(BrokerUnavailable, match="closed for good"):
                await running
        await broker.close()


class TestAProcess:
    """The process ends with an exit code, so that its supervisor restarts it."""

    @pytest.mark.parametrize("command", ["dispatcher", "scheduler", "worker"])
    async def test_ends_with_an_exit_code(self, database_url, proxy, tmp_path, command, world):
        await world.provision()
        folder = tmp_path / "processes"
        folder.mkdir()
        processes = Processes(database_url, proxy.url, folder, nats_ping_seconds=str(PING))
        program = await processes.headway(command)
        try:

            async def speaks():
                return f"{command} started" in processes.logs()

            await until(speaks, within=LONG, what="the program runs")
            proxy.stall_after(HANDSHAKE_ENDS)
            proxy.stall()
            async with asyncio.timeout(LONG):
                assert await program.wait() == 2
            assert "closed for good" in processes.logs()
        finally:
            await processes.stop()


class TestNoFalseAlarm:
    async def test_a_server_that_is_away_is_waited_for(self, tmp_path):
        needs_embedded()
        server = NatsServer(tmp_path / "own-nats")
        await server.start()
        broker = await Broker.connect(server.url, name="test", ping_seconds=PING)
        await server.kill()
        tries = broker.client.failed_connects

        async def tried_for_long():
            return broker.client.failed_connects > tries + 5

        # Many times as long as a connection that gives no sign of life would be given.
        await until(tried_for_long, within=LONG, what="more tries")
        assert not broker.closed.is_set()
        await server.start()

        async def answers():
            try:
                await broker.ping()
            except BrokerUnavailable:
                return False
            return True

        await until(answers, within=LONG, what="connected again")
        await broker.close()
        await server.stop()

    async def test_a_server_that_accepts_and_says_nothing_is_waited_for(self, proxy):
        """No connection is made: an outage like any other."""
        broker = await Broker.connect(proxy.url, name="test", ping_seconds=PING)
        proxy.stall(new_ones_too=True)

        async def tried():
            return broker.client.failed_connects >= 4

        await until(tried, within=LONG, what="tries that fail")
        assert not broker.closed.is_set()
        proxy.flow()

        async def answers():
            try:
                await broker.ping()
            except BrokerUnavailable:
                return False
            return True

        await until(answers, within=LONG, what="connected again")
        await broker.close()

    async def test_a_process_that_was_held_up_has_missed_nothing(self, nats_url):
        """A job that blocks the loop is not the connection's fault."""
        broker = await Broker.connect(nats_url, name="test", ping_seconds=PING)
        for _ in range(12):
            time.sleep(3 * PING)  # noqa: ASYNC251 - this is the fault
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.sleep(3 * PING)
        await broker.ping()
        assert broker.client.stats["reconnects"] == 0
        assert not broker.closed.is_set()
        await broker.close()
