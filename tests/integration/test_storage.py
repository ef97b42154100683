"""The database: forward-only migrations, and transactions that release their locks."""

import asyncio

import asyncpg
import pytest
from headway_dispatcher.store import MIGRATIONS as DISPATCHER
from headway_postgres_kit import (
    Database,
    DatabaseUnavailable,
    Migrations,
    SchemaMismatch,
    json_array,
    savepoint,
)
from headway_scheduler.store import MIGRATIONS as SCHEDULER
from support.world import until

pytestmark = pytest.mark.thorough


async def test_migrating_twice_changes_nothing(database):
    await SCHEDULER.check(database)
    await DISPATCHER.check(database)
    assert await SCHEDULER.apply(database) == []


async def test_an_empty_database_is_detected_and_migrated(postgres):
    url = await postgres.new_database(template="template1")
    database = await Database.connect(url, name="test")
    try:
        with pytest.raises(SchemaMismatch, match="run 'headway migrate'"):
            await SCHEDULER.check(database)
        assert await SCHEDULER.apply(database) == [
            f"scheduler {step.number:04} {step.title}" for step in SCHEDULER.steps
        ]
        await SCHEDULER.check(database)
    finally:
        await database.close()
        await postgres.drop(url)


async def test_a_schema_newer_than_the_code_is_refused(database):
    async with database.acquire() as connection:
        await connection.execute(
            "INSERT INTO scheduler.migration (number, title, checksum) VALUES (9999, 'later', '')"
        )
    for attempt in (SCHEDULER.check, SCHEDULER.apply):
        with pytest.raises(SchemaMismatch, match="version 9999, newer than this program"):
            await attempt(database)


async def test_an_edited_migration_is_noticed(database):
    async with database.acquire() as connection:
        await connection.execute("UPDATE dispatcher.migration SET checksum = 'x' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match="0001 of schema 'dispatcher' was changed"):
        await DISPATCHER.check(database)


async def test_a_failing_migration_leaves_nothing_behind(database):
    broken = Migrations("headway_scheduler", "scheduler")
    broken.steps = [
        *broken.steps,
        type(broken.steps[0])(
            len(broken.steps) + 1, "broken", "CREATE TABLE half (); SELECT 1 / 0"
        ),
    ]
    with pytest.raises(asyncpg.DivisionByZeroError):
        await broken.apply(database)
    async with database.acquire() as connection:
        assert await connection.fetchval("SELECT to_regclass('half')") is None
    await SCHEDULER.check(database)


async def test_any_json_survives_a_journey_through_an_array(database):
    values = [None, [], [1, [2]], {"a": [None]}, "text", 1.5, True]
    async with database.acquire() as connection:
        rows = await connection.fetch(
            "SELECT value FROM unnest($1::jsonb[]) AS value", json_array(values)
        )
    assert [row["value"] for row in rows] == values


async def test_an_unreachable_server_is_named_without_its_password():
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:1/nowhere") as caught:
        await Database.connect("postgresql://user:secret@127.0.0.1:1/nowhere", name="test")
    assert "secret" not in str(caught.value)


async def test_a_connection_that_the_server_has_just_ended_is_an_outage(database):
    """The server sends its error to an idle connection before it closes the connection."""
    error = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    with pytest.raises(DatabaseUnavailable, match="another operation"):
        async with database.acquire() as connection:
            length = (4 + len(error)).to_bytes(4, "big")
            connection._protocol.data_received(b"E" + length + error)
            try:
                await connection.execute("SELECT 1")
            finally:
                connection.terminate()
    async with database.acquire() as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_locked_transaction_releases_its_lock_however_it_ends(database):
    """The lock is released by a commit, by a failure, and by a cancel during the wait."""
    async with database.locked_transaction(1) as connection:
        assert await locks(connection) == 1
    with pytest.raises(ZeroDivisionError):
        async with database.locked_transaction(1) as connection:
            await connection.execute("CREATE TABLE half_done ()")
            raise ZeroDivisionError
    async with database.locked_transaction(1) as connection:
        assert await connection.fetchval("SELECT to_regclass('half_done')") is None
        waiting = asyncio.create_task(_lock_once(database))
        await until(
            lambda: _lock_has_waiter(database), within=20, what="a transaction waits for the lock"
        )
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await locks(connection) == 1
    async with database.acquire() as connection:
        assert await locks(connection) == 0


async def test_a_shared_lock_excludes_only_exclusive_locks(database):
    async with database.locked_transaction(1, shared=True) as first:
        async with database.locked_transaction(1, shared=True):
            assert await locks(first) == 2
        async with database.acquire() as other:
            assert not await other.fetchval("SELECT pg_try_advisory_xact_lock(1)")


@pytest.mark.parametrize("kind", ["transaction", "locked"])
async def test_a_part_of_a_transaction_is_undone_alone(database, kind):
    begin = database.transaction() if kind == "transaction" else database.locked_transaction(1)
    async with begin as connection:
        await connection.execute("CREATE TABLE whole (id integer PRIMARY KEY)")
        async with savepoint(connection):
            await connection.execute("INSERT INTO whole VALUES (1)")
        with pytest.raises(asyncpg.UniqueViolationError):
            async with savepoint(connection):
                await connection.execute("INSERT INTO whole VALUES (2)")
                await connection.execute("INSERT INTO whole VALUES (1)")
    async with database.acquire() as connection:
        assert await connection.fetchval("SELECT array_agg(id) FROM whole") == [1]


async def locks(connection) -> int:
    return await connection.fetchval(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )


async def _lock_once(database) -> None:
    async with database.locked_transaction(1):
        pass


async def _lock_has_waiter(database) -> bool:
    async with database.acquire() as connection:
        return await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        )
