"""Checks of PostgreSQL: version, disk, schemas, roles, partitions, transactions, safety."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from headway_clock import utc_now
from headway_dispatcher.public import retention
from headway_postgres_kit import Database, DatabaseUnavailable, Queries, SchemaMismatch
from headway_scheduler.public import enqueue_role_is_missing

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


async def check_database(database: Database) -> Area:
    """Check the database; its disk is tested with a temporary file."""
    area, where, mismatched = Area("postgresql"), database.where, set[str]()
    async with database.acquire() as connection:
        before = utc_now()
        [server] = await connection.fetch(queries["server"])
        ours = before + (utc_now() - before) / 2
    judge_server(area, server, where=where, ours=ours)
    try:
        async with database.transaction() as connection:
            await connection.execute(queries["write_temporary_file"])
    except DatabaseUnavailable as error:
        remedy = "free space on its disk; if it has stopped, start it"
        area.trouble("disk", f"PostgreSQL cannot write 20 MB: {error}", remedy)
    for migrations in MIGRATIONS:
        try:
            await migrations.check(database)
        except SchemaMismatch as error:
            mismatched.add(migrations.schema)
            text, _, remedy = str(error).rpartition(": ")
            area.trouble("schema", text, remedy)
        else:
            area.ok("schema", f"{migrations.schema} has the version of this program")
    async with database.acquire() as connection:
        rows = await connection.fetch(queries["writable"])
        judge_reading(area, server["reads"], [row["name"] for row in rows])
        judge_transactions(area, await connection.fetch(queries["transactions"], _LONG, _FEW))
        if "dispatcher" not in mismatched:
            days = await connection.fetch(retention["missing_days"], server["now"], _DAYS_AHEAD)
            unreached = await connection.fetch(queries["consumers"], _LONG, _FEW)
            judge_dispatching(area, [row["day"] for row in days], unreached)
    if "scheduler" not in mismatched and await enqueue_role_is_missing(database):
        remedy = "run 'headway migrate': it prints the statements for a user who may create roles"
        area.warning("enqueuing", "no role headway_enqueue may enqueue by SQL", remedy)
    return area


def judge_server(area: Area, server: Any, *, where: str, ours: datetime) -> None:
    """Judge the version, the clock and the settings of the server; `ours` is our own time."""
    major, name = server["version"] // 10_000, f"PostgreSQL {server['version_text']}"
    if server["standby"]:
        text = f"{where} is a standby, which accepts no changes"
        area.trouble("version", text, "let HEADWAY_DATABASE_URL name the primary")
    elif major < _OLDEST:
        remedy = f"upgrade it: Headway needs {_OLDEST}, and is tested on {_TESTED}"
        area.trouble("version", name, remedy)
    elif major < _TESTED:
        area.warning("version", name, f"Headway is tested on {_TESTED}: plan an upgrade")
    area.otherwise_ok("version", f"{name} at {where}")
    area.clock(server["now"], ours, "schedules use the database's clock")
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


def judge_reading(area: Area, reads: bool | None, writable: list[str]) -> None:
    """Judge the role of the console: whether we are a member, and the tables that it can change."""
    tables = ", ".join(writable)
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
    area.otherwise_ok("reading", "the console reads with a role that can change nothing")


def judge_dispatching(area: Area, missing_days: list[date], unreached: Iterable[Any]) -> None:
    """Judge the partitions of history, and the jobs whose orders reach no worker."""
    if missing_days:
        text = f"there is no partition for {', '.join(map(str, missing_days))}"
        remedy = "check that a dispatcher runs, and that nothing locks dispatcher.history for long"
        area.warning("history", text, remedy)
    area.otherwise_ok("history", "the partitions of the coming days exist")
    for job, error in unreached:
        if error is None:
            text = f"a worker serves job {job}, which no application declares, so it gets no orders"
            remedy = "start the scheduler of the application that has it, or correct the name"
            area.warning("consumers", text, remedy)
        else:
            text = f"NATS refuses the consumer of job {job}, so no worker gets its orders: {error}"
            remedy = "raise that limit of NATS, or delete foreign consumers of HEADWAY_RUNS"
            area.trouble("consumers", text, remedy)


def judge_transactions(area: Area, transactions: Sequence[Any]) -> None:
    """Judge transactions that are open for long."""
    for row in transactions:
        client = f"{row['name'] or 'a client'} (pid {row['pid']})"
        text = f"{client} has one open for {row['seconds']:.0f} s ({row['state']})"
        remedy = f"end what it does, or SELECT pg_terminate_backend({row['pid']})"
        area.warning("transactions", f"{text}, which prevents vacuuming", remedy)
    area.otherwise_ok("transactions", "none is open for more than a minute")
