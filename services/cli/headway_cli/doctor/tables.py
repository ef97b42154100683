"""PostgreSQL: its version, the schemas, who may do what, and what holds it up."""

from datetime import date, datetime, timedelta

from headway_clock import utc_now
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_dispatcher.store import retention
from headway_postgres_kit import (
    Connection,
    Database,
    DatabaseUnavailable,
    Migrations,
    Queries,
    SchemaMismatch,
)
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from msgspec import Struct

from headway_cli.doctor.clocks import judge_clock
from headway_cli.doctor.findings import Area, Finding

queries = Queries("headway_cli", "sql/doctor.sql")

_AREA = Area("postgresql")
_LONG = timedelta(minutes=1)
_FEW = 5
# Tomorrow at least: what has no day of its own waits in the default partition.
_DAYS_AHEAD = 1
_TESTED, _OLDEST = 18, 14
_CROWDED = 0.8
_OLD_TRANSACTIONS = 1_000_000_000


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The server as it tells of itself, and our own time between question and answer."""

    version: int
    version_text: str
    now: datetime
    ours: datetime
    standby: bool
    connections: int
    most_connections: int
    fsync: bool
    synchronous_commit: str
    autovacuum: bool
    transaction_age: int


class Role(Struct, frozen=True, kw_only=True):
    """A role of Headway's."""

    name: str
    is_there: bool
    is_ours: bool


class Transaction(Struct, frozen=True, kw_only=True):
    """A transaction that somebody has left open."""

    pid: int
    name: str
    state: str
    seconds: float


class TableFacts(Struct, frozen=True, kw_only=True):
    """What the database tells. Of a schema that is not ours to read, why not."""

    where: str
    server: ServerFacts
    schemas: dict[str, str]
    roles: list[Role]
    writable: list[str]
    transactions: list[Transaction]
    missing_days: list[date]
    # Jobs whose orders reach no worker: the broker's reason, or none if nobody declares the job.
    unreached: dict[str, str | None] = {}
    # Why it cannot write to its disk.
    write_error: str = ""


async def gather_tables(database: Database) -> TableFacts:
    """Look at the database, and change nothing; its disk is tried with a temporary file."""
    write_error = await _write_error(database)
    schemas = {
        one.schema: await _mismatch(database, one)
        for one in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS)
    }
    async with database.acquire() as connection:
        asked_at = utc_now()
        [server] = await connection.fetch(queries["server"])
        ours = asked_at + (utc_now() - asked_at) / 2
        return TableFacts(
            where=database.where,
            server=ServerFacts(ours=ours, **dict(server)),
            schemas=schemas,
            roles=[Role(**dict(row)) for row in await connection.fetch(queries["roles"])],
            writable=[row["name"] for row in await connection.fetch(queries["writable"])],
            transactions=[
                Transaction(**dict(row))
                for row in await connection.fetch(queries["transactions"], _LONG, _FEW)
            ],
            missing_days=await _missing_days(connection, schemas, server["now"]),
            unreached=await _unreached(connection, schemas),
            write_error=write_error,
        )


async def _write_error(database: Database) -> str:
    try:
        async with database.transaction() as connection:
            await connection.execute(queries["write_temporary_file"])
    except DatabaseUnavailable as error:
        return str(error)
    return ""


async def _mismatch(database: Database, migrations: Migrations) -> str:
    try:
        await migrations.check(database)
    except SchemaMismatch as error:
        return str(error)
    return ""


async def _missing_days(
    connection: Connection, schemas: dict[str, str], now: datetime
) -> list[date]:
    if schemas[DISPATCHER_MIGRATIONS.schema]:
        return []
    rows = await connection.fetch(retention["missing_days"], now, _DAYS_AHEAD)
    return [row["day"] for row in rows]


async def _unreached(connection: Connection, schemas: dict[str, str]) -> dict[str, str | None]:
    if schemas[DISPATCHER_MIGRATIONS.schema]:
        return {}
    rows = await connection.fetch(queries["consumers"], _LONG, _FEW)
    return {row["job"]: row["error"] for row in rows}


def judge_tables(facts: TableFacts) -> list[Finding]:
    """All that can be said about the database."""
    return [
        *_version(facts),
        *_disk(facts.write_error),
        *(_schema(name, problem) for name, problem in facts.schemas.items()),
        judge_clock(_AREA, facts.server.now, facts.server.ours, "the database decides by its own"),
        *_roles(facts),
        *_days(facts),
        *(_unreached_job(job, error) for job, error in facts.unreached.items()),
        *_transactions(facts.transactions),
        *_safety(facts.server),
    ]


def _version(facts: TableFacts) -> list[Finding]:
    major, told = facts.server.version // 10_000, f"PostgreSQL {facts.server.version_text}"
    if facts.server.standby:
        return [
            _AREA.trouble(
                "version",
                f"{facts.where} is a standby, which takes no changes",
                "let HEADWAY_DATABASE_URL name the primary",
            )
        ]
    if major < _OLDEST:
        remedy = f"upgrade it: Headway needs {_OLDEST}, and is tested on {_TESTED}"
        return [_AREA.trouble("version", told, remedy)]
    if major < _TESTED:
        return [_AREA.warning("version", told, f"Headway is tested on {_TESTED}: plan an upgrade")]
    return [_AREA.ok("version", f"{told} at {facts.where}")]


def _disk(error: str) -> list[Finding]:
    if not error:
        return []
    return [
        _AREA.trouble(
            "disk",
            f"PostgreSQL cannot write 20 MB: {error}",
            "free space on its disk: then it goes on by itself, unless it has stopped meanwhile",
        )
    ]


def _schema(name: str, problem: str) -> Finding:
    if not problem:
        return _AREA.ok("schema", f"{name} is as this version wants it")
    found, _, remedy = problem.rpartition(": ")
    return _AREA.trouble("schema", found, remedy)


def _roles(facts: TableFacts) -> list[Finding]:
    roles = {one.name: one for one in facts.roles}
    reader, enqueue = roles["headway_reader"], roles["headway_enqueue"]
    found = []
    if not reader.is_there:
        found.append(
            _AREA.trouble(
                "reading",
                "there is no role headway_reader, by which the console reads",
                "let somebody who may make roles run: CREATE ROLE headway_reader NOLOGIN; "
                "SELECT dispatcher.grant_reading('headway_reader'), "
                "scheduler.grant_reading('headway_reader');",
            )
        )
    elif not reader.is_ours:
        found.append(
            _AREA.warning(
                "reading",
                "this user may not take on the role headway_reader",
                "the console's must: GRANT headway_reader TO <its user>;",
            )
        )
    elif facts.writable:
        tables = ", ".join(facts.writable)
        found.append(
            _AREA.trouble(
                "reading",
                f"the role headway_reader can change {tables}",
                f"run: REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {tables} FROM headway_reader;",
            )
        )
    else:
        found.append(_AREA.ok("reading", "the console reads by a role that can change nothing"))
    if not enqueue.is_there:
        found.append(
            _AREA.warning(
                "enqueuing",
                "there is no role headway_enqueue for applications that enqueue by SQL",
                "run 'headway migrate': it says what somebody who may make roles has to run",
            )
        )
    return found


def _days(facts: TableFacts) -> list[Finding]:
    if any(facts.schemas.values()):
        return []
    if facts.missing_days:
        days = ", ".join(f"{day}" for day in facts.missing_days)
        return [
            _AREA.warning(
                "history",
                f"there is no partition for {days}",
                "a dispatcher makes them: see that one runs, and that nothing locks "
                "dispatcher.history for long",
            )
        ]
    return [_AREA.ok("history", "the partitions of the coming days are there")]


def _unreached_job(job: str, error: str | None) -> Finding:
    if error is None:
        return _AREA.warning(
            "consumers",
            f"a worker serves job {job}, which no application declares, so it gets no orders",
            "start the scheduler of the application that has it, or correct the name",
        )
    return _AREA.trouble(
        "consumers",
        f"NATS refuses the consumer of job {job}, so its orders reach no worker: {error}",
        "see to that limit of NATS, or delete consumers of HEADWAY_RUNS that are not Headway's",
    )


def _transactions(found: list[Transaction]) -> list[Finding]:
    if not found:
        return [_AREA.ok("transactions", "none is open for more than a minute")]
    return [
        _AREA.warning(
            "transactions",
            f"{one.name or 'somebody'} (pid {one.pid}) has one open for {one.seconds:.0f} s"
            f" ({one.state})",
            "it keeps the tables from being cleaned: end what it is at, or "
            f"SELECT pg_terminate_backend({one.pid})",
        )
        for one in found
    ]


def _safety(server: ServerFacts) -> list[Finding]:
    found = []
    if not server.fsync or server.synchronous_commit == "off":
        name = "fsync" if not server.fsync else "synchronous_commit"
        found.append(
            _AREA.warning(
                "safety",
                f"{name} is off: a crash of the server loses what was committed last",
                f"set {name} = on where decisions must not be lost",
            )
        )
    if not server.autovacuum:
        found.append(
            _AREA.trouble("safety", "autovacuum is off: the tables grow", "set autovacuum = on")
        )
    if server.transaction_age > _OLD_TRANSACTIONS:
        found.append(
            _AREA.warning(
                "safety",
                f"the oldest transaction number is {server.transaction_age:,} old",
                "see why autovacuum does not freeze it: a long transaction, a slot, a standby",
            )
        )
    if server.connections > _CROWDED * server.most_connections:
        found.append(
            _AREA.warning(
                "connections",
                f"{server.connections} of {server.most_connections} are in use",
                "raise max_connections, or lower HEADWAY_DATABASE_CONNECTIONS of the services",
            )
        )
    return found
