"""Checks of PostgreSQL: version, disk, schemas, roles, partitions, transactions, safety."""

from datetime import date, datetime, timedelta
from typing import Any

from headway_clock import utc_now
from headway_dispatcher.public import retention
from headway_postgres_kit import Database, DatabaseUnavailable, Queries, SchemaMismatch
from headway_scheduler.public import enqueue_role_is_missing
from msgspec import Struct

from headway_cli.doctor.findings import Area
from headway_cli.serve.services import MIGRATIONS

queries = Queries("headway_cli", "sql/doctor.sql")

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
    server: Any
    ours: datetime
    schemas: dict[str, str]
    no_enqueue_role: bool = False
    writable: list[str] = []
    transactions: list[Any] = []
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
        server=server,
        ours=ours,
        schemas=schemas,
        no_enqueue_role=not schemas["scheduler"] and await enqueue_role_is_missing(database),
        writable=[row["name"] for row in writable],
        transactions=transactions,
        missing_days=[row["day"] for row in days],
        unreached={row["job"]: row["error"] for row in unreached},
        write_error=write_error,
    )


def judge_database(facts: DatabaseFacts) -> Area:
    """Judge the state of the database."""
    area = Area("postgresql")
    _judge_version(area, facts)
    if facts.write_error:
        text = f"PostgreSQL cannot write 20 MB: {facts.write_error}"
        area.trouble("disk", text, "free space on its disk; if it has stopped, start it")
    for name, problem in facts.schemas.items():
        text, _, remedy = problem.rpartition(": ")
        if problem:
            area.trouble("schema", text, remedy)
        else:
            area.ok("schema", f"{name} has the version of this program")
    area.clock(facts.server["now"], facts.ours, "schedules use the database's clock")
    _judge_roles(area, facts)
    _judge_dispatching(area, facts)
    for row in facts.transactions:
        client = f"{row['name'] or 'a client'} (pid {row['pid']})"
        text = f"{client} has one open for {row['seconds']:.0f} s ({row['state']})"
        remedy = f"end what it does, or SELECT pg_terminate_backend({row['pid']})"
        area.warning("transactions", f"{text}, which prevents vacuuming", remedy)
    if not facts.transactions:
        area.ok("transactions", "none is open for more than a minute")
    _judge_safety(area, facts.server)
    return area


def _judge_version(area: Area, facts: DatabaseFacts) -> None:
    major, name = facts.server["version"] // 10_000, f"PostgreSQL {facts.server['version_text']}"
    if facts.server["standby"]:
        text = f"{facts.where} is a standby, which accepts no changes"
        area.trouble("version", text, "let HEADWAY_DATABASE_URL name the primary")
    elif major < _OLDEST:
        remedy = f"upgrade it: Headway needs {_OLDEST}, and is tested on {_TESTED}"
        area.trouble("version", name, remedy)
    elif major < _TESTED:
        area.warning("version", name, f"Headway is tested on {_TESTED}: plan an upgrade")
    else:
        area.ok("version", f"{name} at {facts.where}")


def _judge_roles(area: Area, facts: DatabaseFacts) -> None:
    reads, tables = facts.server["reads"], ", ".join(facts.writable)
    if reads is None:
        remedy = (
            "a user who may create roles must run: CREATE ROLE headway_reader NOLOGIN; SELECT "
            "dispatcher.grant_reading('headway_reader'), scheduler.grant_reading('headway_reader');"
        )
        area.trouble("reading", "the console's role headway_reader does not exist", remedy)
    elif not reads:
        remedy = "the console's user must be one: GRANT headway_reader TO <its user>;"
        area.warning("reading", "this user is not a member of headway_reader", remedy)
    elif tables:
        remedy = f"run: REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {tables} FROM headway_reader;"
        area.trouble("reading", f"the role headway_reader can change {tables}", remedy)
    else:
        area.ok("reading", "the console reads with a role that can change nothing")
    if facts.no_enqueue_role:
        remedy = "run 'headway migrate': it prints the statements for a user who may create roles"
        area.warning("enqueuing", "no role headway_enqueue may enqueue by SQL", remedy)


def _judge_dispatching(area: Area, facts: DatabaseFacts) -> None:
    if facts.missing_days:
        text = f"there is no partition for {', '.join(map(str, facts.missing_days))}"
        remedy = "check that a dispatcher runs, and that nothing locks dispatcher.history for long"
        area.warning("history", text, remedy)
    elif not any(facts.schemas.values()):
        area.ok("history", "the partitions of the coming days exist")
    for job, error in facts.unreached.items():
        if error is None:
            text = f"a worker serves job {job}, which no application declares, so it gets no orders"
            remedy = "start the scheduler of the application that has it, or correct the name"
            area.warning("consumers", text, remedy)
        else:
            text = f"NATS refuses the consumer of job {job}, so no worker gets its orders: {error}"
            remedy = "raise that limit of NATS, or delete foreign consumers of HEADWAY_RUNS"
            area.trouble("consumers", text, remedy)


def _judge_safety(area: Area, server: Any) -> None:
    for name in ("fsync", "synchronous_commit"):
        if server[name] == "off":
            text = f"{name} is off: a crash of the server loses the latest commits"
            area.warning("safety", text, f"set {name} = on")
    if server["autovacuum"] == "off":
        area.trouble("safety", "autovacuum is off: tables grow", "set autovacuum = on")
    if server["transaction_age"] > _OLD_TRANSACTIONS:
        text = f"the oldest transaction id is {server['transaction_age']:,} transactions old"
        remedy = "see what keeps autovacuum from freezing it: a transaction, a slot, a standby"
        area.warning("safety", text, remedy)
    if server["connections"] > _CROWDED * server["most_connections"]:
        text = f"{server['connections']} of {server['most_connections']} are in use"
        remedy = "raise max_connections, or lower HEADWAY_DATABASE_CONNECTIONS of the services"
        area.warning("connections", text, remedy)
