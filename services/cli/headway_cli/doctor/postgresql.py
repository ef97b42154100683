"""Checks of PostgreSQL: version, disk, schemas, roles, partitions, transactions, safety."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from headway_clock import utc_now
from headway_dispatcher.public import retention
from headway_postgres_kit import Database, DatabaseUnavailable, Queries, SchemaMismatch
from headway_scheduler.public import enqueue_role_is_missing
from msgspec import Struct

from headway_cli.doctor.findings import Area, Finding
from headway_cli.serve.services import MIGRATIONS

queries = Queries("headway_cli", "sql/doctor.sql")

_AREA = Area("postgresql")
_LONG = timedelta(minutes=1)
_FEW = 5
# Events of a day without a partition go to the default partition, so tomorrow must have one.
_DAYS_AHEAD = 1
_TESTED, _OLDEST = 18, 14
_CROWDED = 0.8
_OLD_TRANSACTIONS = 1_000_000_000


class DatabaseFacts(Struct, frozen=True, kw_only=True):
    """The state of the database: rows of the queries, and our own time at the first answer.

    `schemas` has the problem of each schema; `unreached` the jobs whose orders reach no worker,
    with the error of the broker, or `None` if no application declares the job.
    """

    where: str
    server: Mapping[str, Any]
    ours: datetime
    schemas: dict[str, str]
    no_enqueue_role: bool = False
    writable: list[str] = []
    transactions: list[Mapping[str, Any]] = []
    missing_days: list[date] = []
    unreached: dict[str, str | None] = {}
    write_error: str = ""


async def gather_database(database: Database) -> DatabaseFacts:
    """Read the state of the database; the disk is tested with a temporary file."""
    write_error, schemas = "", {}
    try:
        async with database.transaction() as connection:
            await connection.execute(queries["write_temporary_file"])
    except DatabaseUnavailable as error:
        write_error = str(error)
    for migrations in MIGRATIONS:
        schemas[migrations.schema] = ""
        try:
            await migrations.check(database)
        except SchemaMismatch as error:
            schemas[migrations.schema] = str(error)
    async with database.acquire() as connection:
        before = utc_now()
        [server] = await connection.fetch(queries["server"])
        ours = before + (utc_now() - before) / 2
        writable = await connection.fetch(queries["writable"])
        transactions = await connection.fetch(queries["transactions"], _LONG, _FEW)
        days, unreached = [], []
        if not schemas["dispatcher"]:
            days = await connection.fetch(retention["missing_days"], server["now"], _DAYS_AHEAD)
            unreached = await connection.fetch(queries["consumers"], _LONG, _FEW)
    return DatabaseFacts(
        where=database.where,
        server=dict(server),
        ours=ours,
        schemas=schemas,
        no_enqueue_role=not schemas["scheduler"] and await enqueue_role_is_missing(database),
        writable=[row["name"] for row in writable],
        transactions=[dict(row) for row in transactions],
        missing_days=[row["day"] for row in days],
        unreached={row["job"]: row["error"] for row in unreached},
        write_error=write_error,
    )


def judge_database(facts: DatabaseFacts) -> list[Finding]:
    """Judge the state of the database."""
    return [
        _judge_version(facts),
        *_judge_storage(facts),
        _AREA.clock(facts.server["now"], facts.ours, "schedules use the database's clock"),
        *_judge_roles(facts),
        *_judge_dispatching(facts),
        *_judge_transactions(facts.transactions),
        *_judge_safety(facts.server),
    ]


def _judge_version(facts: DatabaseFacts) -> Finding:
    major, name = facts.server["version"] // 10_000, f"PostgreSQL {facts.server['version_text']}"
    if facts.server["standby"]:
        text = f"{facts.where} is a standby, which accepts no changes"
        return _AREA.trouble("version", text, "let HEADWAY_DATABASE_URL name the primary")
    if major < _OLDEST:
        remedy = f"upgrade it: Headway needs {_OLDEST}, and is tested on {_TESTED}"
        return _AREA.trouble("version", name, remedy)
    if major < _TESTED:
        return _AREA.warning("version", name, f"Headway is tested on {_TESTED}: plan an upgrade")
    return _AREA.ok("version", f"{name} at {facts.where}")


def _judge_storage(facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.write_error:
        remedy = "free space on its disk; if it has stopped, start it"
        yield _AREA.trouble("disk", f"PostgreSQL cannot write 20 MB: {facts.write_error}", remedy)
    for name, problem in facts.schemas.items():
        text, _, remedy = problem.rpartition(": ")
        yield (
            _AREA.trouble("schema", text, remedy)
            if problem
            else _AREA.ok("schema", f"{name} has the version of this program")
        )


def _judge_roles(facts: DatabaseFacts) -> Iterator[Finding]:
    reads, tables = facts.server["reads"], ", ".join(facts.writable)
    if reads is None:
        remedy = (
            "a user who may create roles must run: CREATE ROLE headway_reader NOLOGIN; SELECT "
            "dispatcher.grant_reading('headway_reader'), scheduler.grant_reading('headway_reader');"
        )
        yield _AREA.trouble("reading", "the console's role headway_reader does not exist", remedy)
    elif not reads:
        remedy = "the console's user must be one: GRANT headway_reader TO <its user>;"
        yield _AREA.warning("reading", "this user is not a member of headway_reader", remedy)
    elif tables:
        remedy = f"run: REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {tables} FROM headway_reader;"
        yield _AREA.trouble("reading", f"the role headway_reader can change {tables}", remedy)
    else:
        yield _AREA.ok("reading", "the console reads with a role that can change nothing")
    if facts.no_enqueue_role:
        remedy = "run 'headway migrate': it prints the statements for a user who may create roles"
        yield _AREA.warning("enqueuing", "no role headway_enqueue may enqueue by SQL", remedy)


def _judge_dispatching(facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.missing_days:
        text = f"there is no partition for {', '.join(map(str, facts.missing_days))}"
        remedy = "check that a dispatcher runs, and that nothing locks dispatcher.history for long"
        yield _AREA.warning("history", text, remedy)
    elif not any(facts.schemas.values()):
        yield _AREA.ok("history", "the partitions of the coming days exist")
    for job, error in facts.unreached.items():
        if error is None:
            text = f"a worker serves job {job}, which no application declares, so it gets no orders"
            remedy = "start the scheduler of the application that has it, or correct the name"
            yield _AREA.warning("consumers", text, remedy)
        else:
            text = f"NATS refuses the consumer of job {job}, so no worker gets its orders: {error}"
            remedy = "raise that limit of NATS, or delete foreign consumers of HEADWAY_RUNS"
            yield _AREA.trouble("consumers", text, remedy)


def _judge_transactions(transactions: list[Mapping[str, Any]]) -> Iterator[Finding]:
    for row in transactions:
        text = (
            f"{row['name'] or 'a client'} (pid {row['pid']}) has one open for "
            f"{row['seconds']:.0f} s ({row['state']}), which prevents vacuuming"
        )
        remedy = f"end what it does, or SELECT pg_terminate_backend({row['pid']})"
        yield _AREA.warning("transactions", text, remedy)
    if not transactions:
        yield _AREA.ok("transactions", "none is open for more than a minute")


def _judge_safety(server: Mapping[str, Any]) -> Iterator[Finding]:
    for name in ("fsync", "synchronous_commit"):
        if server[name] == "off":
            text = f"{name} is off: a crash of the server loses the latest commits"
            yield _AREA.warning("safety", text, f"set {name} = on")
    if server["autovacuum"] == "off":
        yield _AREA.trouble("safety", "autovacuum is off: tables grow", "set autovacuum = on")
    if server["transaction_age"] > _OLD_TRANSACTIONS:
        text = f"the oldest transaction id is {server['transaction_age']:,} transactions old"
        remedy = "see what keeps autovacuum from freezing it: a transaction, a slot, a standby"
        yield _AREA.warning("safety", text, remedy)
    if server["connections"] > _CROWDED * server["most_connections"]:
        text = f"{server['connections']} of {server['most_connections']} are in use"
        remedy = "raise max_connections, or lower HEADWAY_DATABASE_CONNECTIONS of the services"
        yield _AREA.warning("connections", text, remedy)
