"""PostgreSQL that hangs, is slow or runs out of connections: no caller waits for ever."""

import asyncio
import socket

import asyncpg
import pytest
import pytest_asyncio
from headway_clock import monotonic
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_postgres_kit import database as database_module
from support.apps import ticking
from support.invariants import check_invariants
from support.proxy import Proxy
from support.world import until

pytestmark = pytest.mark.long

ANSWER = 1.2


@pytest_asyncio.fixture
async def proxy(database_url):
    made = await Proxy(database_url).start()
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def quick(proxy):
    """A database that must answer soon, behind a proxy."""
    made = await Database.connect(proxy.url, name="test", answer_seconds=ANSWER)
    yield made
    proxy.flow()
    await made.close()


async def setting(database, name: str) -> str:
    async with database.acquire() as connection:
        return await connection.fetchval("SELECT current_setting($1)", name)


async def test_every_session_has_limits(database):
    assert {
        name: await setting(database, name)
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    } == {
        "statement_timeout": "25s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "20s",
    }


async def test_both_ends_notice_a_peer_that_is_gone(database):
    assert [
        await setting(database, f"tcp_{name}")
        for name in ("keepalives_idle", "keepalives_interval", "keepalives_count", "user_timeout")
    ] == ["10", "5", "3", "25000"]
    async with database.acquire() as connection:
        link = connection._con._transport.get_extra_info("socket")
        kept = [
            link.getsockopt(level, option)
            for level, option in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            )
        ]
    assert kept == [1, 10, 25_000]


async def test_a_slow_statement_is_ended_by_the_server(quick):
    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        async with quick.transaction() as connection:
            await connection.execute("SELECT pg_sleep(30)")
    await quick.ping()


async def test_a_lock_is_not_waited_for_for_ever(quick, database):
    async with database.transaction() as holder:
        await holder.execute("SELECT pg_advisory_xact_lock(1)")
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            async with quick.transaction() as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(1)")


async def test_a_transaction_that_was_left_alone_lets_go_of_its_locks(database_url, monkeypatch):
    monkeypatch.setattr(database_module, "_IDLE_IN_TRANSACTION_SECONDS", 0.3)
    forgetful = await Database.connect(database_url, name="forgetful")
    other = await asyncpg.connect(database_url)
    with pytest.raises(DatabaseUnavailable):
        async with forgetful.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(1)")
            async with asyncio.timeout(10):
                await other.execute("SELECT pg_advisory_lock(1)")
            await connection.execute("SELECT 1")
    await other.close()
    await forgetful.close()


async def test_a_server_that_hangs_is_given_up_and_named(quick, proxy):
    began = monotonic()
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        async with quick.transaction() as connection:
            await connection.execute("SELECT 1")
            proxy.stall()
            await connection.execute("SELECT 1")
    assert monotonic() - began < 3 * ANSWER, "the question, and the roll-back that nobody hears"
    proxy.flow()
    await quick.ping()


async def test_a_pool_that_is_used_up_is_an_outage_and_not_a_hang(database_url, monkeypatch):
    monkeypatch.setattr(database_module, "_ACQUIRE_SECONDS", 0.3)
    small = await Database.connect(database_url, name="small", max_connections=1)
    async with small.acquire():
        with pytest.raises(DatabaseUnavailable, match="no answer"):
            async with small.acquire():
                pass
    await small.ping()
    await small.close()


async def test_health_asks_a_hanging_server_once_and_answers_in_time(quick, proxy):
    await quick.ping()
    proxy.stall(new_ones_too=True)
    accepted = proxy.accepted
    async with asyncio.timeout(3):
        answers = await asyncio.gather(*(quick.ping() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
    assert proxy.accepted - accepted <= 2, "twenty checks, one question and its cancel"


async def test_closing_does_not_wait_for_a_server_that_hangs(database_url, proxy):
    database = await Database.connect(proxy.url, name="test")
    await database.ping()
    proxy.stall(new_ones_too=True)
    async with asyncio.timeout(10):
        await database.close()


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
async def test_services_say_so_and_go_on_when_it_answers_again(world, proxy, direction):
    app = ticking()
    direct, world.database_url = world.database_url, proxy.url
    dispatcher = await world.dispatcher(database_answer_seconds=ANSWER, orphan_timeout_seconds=3)
    worker = await world.worker(app)
    scheduler = await world.scheduler(app, database_answer_seconds=ANSWER)
    completed = "SELECT count(*) FROM dispatcher.run WHERE state = 'completed'"
    await world.until(completed)

    proxy.stall(direction, new_ones_too=True)

    async def reports_outage(service):
        status, body = await service.health.report("/readyz")
        return status == 503 and "PostgreSQL" in body and "no answer" in body

    for service in (dispatcher, scheduler):
        await until(lambda service=service: reports_outage(service), within=15, what="not ready")
        assert (await service.health.report("/livez"))[0] == 200, "not the process's fault"
    before = worker.heartbeats.last_reply

    async def answered():
        return worker.heartbeats.last_reply > before

    await until(answered, within=10, what="workers are answered without the database")

    proxy.flow()
    done = await world.value(completed)
    await world.until(f"SELECT ({completed}) > $1", done + 1, within=30)
    await scheduler.end_pass("tick")
    await world.until_settled(within=45)
    await check_invariants(world.database)
    assert await world.value("SELECT count(*) FROM scheduler.rejected") == 0
    world.database_url = direct
