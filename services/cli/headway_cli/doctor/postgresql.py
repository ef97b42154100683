"""Checks of PostgreSQL: version, disk, schemas, roles, partitions, transactions, safety."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

from headway_clock import utc_now
from headway_dispatcher.public import retention
from headway_postgres_kit import Database, DatabaseUnavailable, Queries, SchemaMismatch

from headway_cli.doctor.findings import Area
from headway_cli.serve.servers import check_migrations

queries = Queries("headway_cli", "sql/doctor.sql")

_LONG = timedelta(minutes=1)
_FEW = 5
# Events of a day without a partition go to the default partition, so tomorrow must have one.
_DAYS_AHEAD = 1
_OLDEST = 14
_CLOCK_SECONDS = 2.0
_CROWDED = 0.8
# Settings that must be on, with the consequence otherwise.
_SAFETY = {
    "fsync": "a crash of the server can damage the data",
    "synchronous_commit": "a crash of the server loses the latest commits",
    "autovacuum": "tables grow",
}


async def check_database(database: Database) -> Area:
    """Check the database; its disk is tested with a temporary file."""
    area = Area("postgresql")
    async with database.acquire() as connection:
        [server] = await connection.fetch(queries["server"])
        judge_server(area, server, where=database.where, ours=utc_now())
        judge_transactions(area, await connection.fetch(queries["transactions"], _LONG, _FEW))
    try:
        async with database.transaction() as connection:
            await connection.execute(queries["write_temporary_file"])
    except DatabaseUnavailable as error:
        remedy = "free space on its disk; if it has stopped, start it"
        area.trouble("disk", f"PostgreSQL cannot write 20 MB: {error}", remedy)
    try:
        await check_migrations(database)
    except SchemaMismatch as error:
        text, _, remedy = str(error).rpartition(": ")
        area.trouble("schema", text, remedy)
        return area
    area.ok("schema", "it has the version of this program")
    async with database.acquire() as connection:
        days = await connection.fetch(retention["missing_days"], server["now"], _DAYS_AHEAD)
        unreached = await connection.fetch(queries["consumers"], _LONG, _FEW)
    judge_dispatching(area, [row["day"] for row in days], unreached)
    return area


def judge_server(area: Area, server: Any, *, where: str, ours: datetime) -> None:
    """Judge version, clock, settings and roles of the server; `ours` is our own time."""
    name = f"PostgreSQL {server['version']}"
    if server["standby"]:
        text = f"{where} is a standby, which accepts no changes"
        area.trouble("version", text, "let HEADWAY_DATABASE_URL name the primary")
    elif int(server["version"].partition(".")[0]) < _OLDEST:
        area.trouble("version", name, f"upgrade it: Headway needs {_OLDEST}")
    area.otherwise_ok("version", f"{name} at {where}")
    ahead = (server["now"] - ours).total_seconds()
    if abs(ahead) > _CLOCK_SECONDS:
        text = f"it is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
        remedy = "synchronize both by NTP: schedules use the database's clock"
        area.warning("clock", text, remedy)
    area.otherwise_ok("clock", f"it agrees with this machine's ({ahead:+.2f} s)")
    for setting, consequence in _SAFETY.items():
        if server[setting] == "off":
            text = f"{setting} is off: {consequence}"
            area.warning("safety", text, f"set {setting} = on")
    if server["connections"] > _CROWDED * server["most_connections"]:
        text = f"{server['connections']} of {server['most_connections']} are in use"
        remedy = "raise max_connections, or lower HEADWAY_DATABASE_CONNECTIONS of the services"
        area.warning("connections", text, remedy)
    tables = ", ".join(server["writable"])
    if server["reads"] is None:
        remedy = (
            "a user who may create roles must run: CREATE ROLE headway_reader NOLOGIN; SELECT "
            "dispatcher.grant_reading('headway_reader'), scheduler.grant_reading('headway_reader');"
        )
        area.trouble("reading", "the console's role headway_reader does not exist", remedy)
    elif not server["reads"]:
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


def judge_transactions(area: Area, transactions: Iterable[Any]) -> None:
    """Judge transactions that are open for long."""
    for row in transactions:
        client = f"{row['name'] or 'a client'} (pid {row['pid']})"
        text = f"{client} has one open for {row['seconds']:.0f} s ({row['state']})"
        remedy = f"end its transaction, or SELECT pg_terminate_backend({row['pid']})"
        area.warning("transactions", f"{text}, which prevents vacuuming", remedy)
    area.otherwise_ok("transactions", "none is open for more than a minute")
