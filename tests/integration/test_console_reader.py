"""The console's database role can read the permitted tables and nothing else."""

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from headway_clock import utc_now
from headway_console.reading import READER, connect_reader
from headway_postgres_kit.sql import parse
from support.readings import readings

ROOT = Path(__file__).parents[2]
SQL = ROOT / "services/console/headway_console/reading/sql"


OTHER = "headway_test_reader"

# Parameter values for which a query finds no row.
PARAMETERS = {"int8": 1, "int4": 1, "bool": False, "interval": timedelta(minutes=1)}

CHANGES = (
    "DELETE FROM dispatcher.metadata",
    "UPDATE scheduler.manifest SET enabled = false",
    "INSERT INTO dispatcher.group_limit (name) VALUES ('g')",
    "TRUNCATE dispatcher.history",
    "SELECT dispatcher.drop_history_day(current_date)",
    "CREATE TABLE public.made (id int)",
    "SELECT nextval('dispatcher.history_number')",
    "SELECT id FROM scheduler.manifest FOR UPDATE",
    "SELECT headway.enqueue('job')",
)
SECRETS = (
    "SELECT token FROM dispatcher.lease",
    "SELECT body FROM dispatcher.outbox",
    "SELECT body FROM scheduler.outbox",
    "SELECT body FROM dispatcher.rejected",
    "SELECT * FROM dispatcher.inbox",
)

MIGRATIONS = [
    text
    for schema in ("dispatcher", "scheduler")
    for text in (
        f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.migration (number integer)",
        *(
            path.read_text()
            for path in sorted(
                (ROOT / f"services/{schema}/headway_{schema}/migrations").glob("*.sql")
            )
        ),
    )
]
UNPRIVILEGED = """
DO $$ BEGIN
    CREATE ROLE headway_test_modest LOGIN PASSWORD 'x' NOCREATEROLE;
    EXECUTE format('GRANT CREATE ON DATABASE %I TO headway_test_modest', current_database());
END $$
"""


@pytest.fixture
async def reader(database_url):
    pool = await connect_reader(database_url)
    yield pool
    await pool.close()


async def test_the_role_can_read_every_list_of_empty_tables(reader):
    async with reader.acquire() as connection:
        assert await connection.fetchval("SELECT current_user") == READER
        for name, ask in readings(utc_now()).items():
            of_one_row = "in full" in name or name.startswith("id of")
            assert (await ask(connection)) is not None or of_one_row, name


async def test_every_query_is_allowed_to_the_role(reader):
    """Run each statement, because PostgreSQL checks privileges at its start."""
    queries = {
        f"{path.stem}.{name}": query
        for path in SQL.glob("*.sql")
        for name, query in parse(path.read_text()).items()
    }
    assert len(queries) > 40
    async with reader.acquire() as connection:
        for name, query in queries.items():
            try:
                statement = await connection.prepare(query)
                await statement.fetch(
                    *[PARAMETERS.get(parameter.name) for parameter in statement.get_parameters()]
                )
            except asyncpg.PostgresError as error:
                raise AssertionError(f"{name}: {error}") from error


async def test_a_write_is_refused(reader):
    refusals = (asyncpg.ReadOnlySQLTransactionError, asyncpg.InsufficientPrivilegeError)
    async with reader.acquire() as connection:
        for read_only in ("on", "off"):  # refused by the session, and by the privileges of the role
            await connection.execute(f"SET default_transaction_read_only = {read_only}")
            for change in CHANGES:
                with pytest.raises(refusals):
                    await connection.execute(change)


async def test_secrets_cannot_be_read(reader):
    async with reader.acquire() as connection:
        for secret in SECRETS:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(secret)


async def test_a_second_database_grants_the_role_too(postgres):
    """The first database creates the role; each database grants its privileges."""
    for url in (await postgres.new_database(), await postgres.new_database()):
        reader = await connect_reader(url)
        async with reader.acquire() as connection:
            assert await connection.fetchval("SELECT count(*) FROM dispatcher.run") == 0
        await reader.close()
        await postgres.drop(url)


@pytest.mark.breaks_tables("recreates the schemas under another owner")
async def test_migrations_without_permission_to_create_roles_warn_with_a_remedy(
    database, database_url
):
    warnings: list[str] = []

    def note(_connection: object, message: object) -> None:
        warnings.append(str(message))

    async with database.acquire() as connection:
        await connection.execute("DROP SCHEMA scheduler, dispatcher, headway CASCADE")
        await connection.execute(UNPRIVILEGED)
        connection.add_log_listener(note)
        try:
            await connection.execute("SET ROLE headway_test_modest")
            # Use another role name, because roles are global and other tests need the real role.
            for text in MIGRATIONS:
                await connection.execute(text.replace(READER, OTHER))
            await connection.execute("RESET ROLE")
            assert len([line for line in warnings if f"role {OTHER} not created" in line]) == 2
            # Follow the hint of the warning.
            await connection.execute(f"CREATE ROLE {OTHER} NOLOGIN")
            await connection.execute(f"GRANT {OTHER} TO headway_test_modest")
            await connection.execute(
                f"SELECT dispatcher.grant_reading('{OTHER}'), scheduler.grant_reading('{OTHER}')"
            )
            reader = await connect_reader(_as(database_url, "headway_test_modest"), role=OTHER)
            async with reader.acquire() as reading:
                assert await reading.fetchval("SELECT count(*) FROM scheduler.manifest") == 0
            await reader.close()
        finally:
            connection.remove_log_listener(note)
            await connection.execute("RESET ROLE")
            for role in (OTHER, "headway_test_modest"):
                if await connection.fetchval("SELECT to_regrole($1) IS NOT NULL", role):
                    await connection.execute(f"DROP OWNED BY {role} CASCADE")
                    await connection.execute(f"DROP ROLE {role}")


def _as(url: str, user: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:x@{host}"))
