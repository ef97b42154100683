"""Checks of PostgreSQL: version, disk, schemas, roles, partitions, transactions, safety."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from headway_clock import utc_now
from headway_dispatcher.public import retention
from headway_postgres_kit import Database, DatabaseUnavailable, Migrations, Queries, SchemaMismatch
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


class ServerFacts(Struct, frozen=True, kw_only=True):
    """The state of the server, and our own time at the moment of the answer."""

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


class Transaction(Struct, frozen=True, kw_only=True):
    """A transaction that is open for long."""

    pid: int
    name: str
    state: str
    seconds: float


class DatabaseFacts(Struct, frozen=True, kw_only=True):
    """The state of the database.

    `schemas` has the problem of each schema, `roles` whether this user is a member of each role
    (`None` if there is no such role), and `unreached` the jobs whose orders reach no worker, with
    the error of the broker, or `None` if no application declares the job.
    """

    where: str
    server: ServerFacts
    schemas: dict[str, str]
    roles: dict[str, bool | None]
    writable: list[str]
    transactions: list[Transaction]
    missing_days: list[date]
    unreached: dict[str, str | None] = {}
    write_error: str = ""


async def gather_database(database: Database) -> DatabaseFacts:
    """Read the state of the database; the disk is tested with a temporary file."""
    write_error = await _write_error(database)
    schemas = {
        migrations.schema: await _mismatch(database, migrations) for migrations in MIGRATIONS
    }
    async with database.acquire() as connection:
        asked_at = utc_now()
        [server] = await connection.fetch(queries["server"])
        ours = asked_at + (utc_now() - asked_at) / 2
        roles = await connection.fetch(queries["roles"])
        writable = await connection.fetch(queries["writable"])
        transactions = await connection.fetch(queries["transactions"], _LONG, _FEW)
        days, unreached = [], []
        if not schemas["dispatcher"]:
            days = await connection.fetch(retention["missing_days"], server["now"], _DAYS_AHEAD)
            unreached = await connection.fetch(queries["consumers"], _LONG, _FEW)
    return DatabaseFacts(
        where=database.where,
        server=ServerFacts(ours=ours, **dict(server)),
        schemas=schemas,
        roles={row["name"]: row["is_ours"] if row["is_there"] else None for row in roles},
        writable=[row["name"] for row in writable],
        transactions=[Transaction(**dict(row)) for row in transactions],
        missing_days=[row["day"] for row in days],
        unreached={row["job"]: row["error"] for row in unreached},
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


def judge_database(facts: DatabaseFacts) -> list[Finding]:
    """Judge the state of the database."""
    return [
        _version(facts),
        *_storage(facts),
        _AREA.clock(facts.server.now, facts.server.ours, "schedules use the database's clock"),
        *_roles(facts),
        *_dispatching(facts),
        *_transactions(facts.transactions),
        *_safety(facts.server),
    ]


def _version(facts: DatabaseFacts) -> Finding:
    major, name = facts.server.version // 10_000, f"PostgreSQL {facts.server.version_text}"
    if facts.server.standby:
        text = f"{facts.where} is a standby, which accepts no changes"
        return _AREA.trouble("version", text, "let HEADWAY_DATABASE_URL name the primary")
    if major < _OLDEST:
        remedy = f"upgrade it: Headway needs {_OLDEST}, and is tested on {_TESTED}"
        return _AREA.trouble("version", name, remedy)
    if major < _TESTED:
        return _AREA.warning("version", name, f"Headway is tested on {_TESTED}: plan an upgrade")
    return _AREA.ok("version", f"{name} at {facts.where}")


def _storage(facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.write_error:
        yield _AREA.trouble(
            "disk",
            f"PostgreSQL cannot write 20 MB: {facts.write_error}",
            "free space on its disk: it then recovers by itself, unless it has stopped meanwhile",
        )
    for name, problem in facts.schemas.items():
        if problem:
            text, _, remedy = problem.rpartition(": ")
            yield _AREA.trouble("schema", text, remedy)
        else:
            yield _AREA.ok("schema", f"{name} has the version of this program")


def _roles(facts: DatabaseFacts) -> Iterator[Finding]:
    reads = facts.roles["headway_reader"]
    tables = ", ".join(facts.writable)
    if reads is None:
        yield _AREA.trouble(
            "reading",
            "there is no role headway_reader, with which the console reads",
            "a user who may create roles must run: CREATE ROLE headway_reader NOLOGIN; "
            "SELECT dispatcher.grant_reading('headway_reader'), "
            "scheduler.grant_reading('headway_reader');",
        )
    elif not reads:
        yield _AREA.warning(
            "reading",
            "this user is not a member of the role headway_reader",
            "the console's user must be: GRANT headway_reader TO <its user>;",
        )
    elif tables:
        yield _AREA.trouble(
            "reading",
            f"the role headway_reader can change {tables}",
            f"run: REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {tables} FROM headway_reader;",
        )
    else:
        yield _AREA.ok("reading", "the console reads with a role that can change nothing")
    if facts.roles["headway_enqueue"] is None:
        yield _AREA.warning(
            "enqueuing",
            "there is no role headway_enqueue for applications that enqueue by SQL",
            "run 'headway migrate': it prints the statements for a user who may create roles",
        )


def _dispatching(facts: DatabaseFacts) -> Iterator[Finding]:
    if facts.missing_days:
        yield _AREA.warning(
            "history",
            f"there is no partition for {', '.join(map(str, facts.missing_days))}",
            "a dispatcher creates them: check that one runs, and that nothing locks "
            "dispatcher.history for long",
        )
    elif not any(facts.schemas.values()):
        yield _AREA.ok("history", "the partitions of the coming days exist")
    for job, error in facts.unreached.items():
        if error is None:
            yield _AREA.warning(
                "consumers",
                f"a worker serves job {job}, which no application declares, so it gets no orders",
                "start the scheduler of the application that has it, or correct the name",
            )
        else:
            yield _AREA.trouble(
                "consumers",
                f"NATS refuses the consumer of job {job}, so its orders reach no worker: {error}",
                "raise that limit of NATS, or delete foreign consumers of HEADWAY_RUNS",
            )


def _transactions(transactions: list[Transaction]) -> list[Finding]:
    return [
        _AREA.warning(
            "transactions",
            f"{transaction.name or 'a client'} (pid {transaction.pid}) has one open for "
            f"{transaction.seconds:.0f} s ({transaction.state})",
            "it prevents vacuuming: end what it does, or "
            f"SELECT pg_terminate_backend({transaction.pid})",
        )
        for transaction in transactions
    ] or [_AREA.ok("transactions", "none is open for more than a minute")]


def _safety(server: ServerFacts) -> Iterator[Finding]:
    if not server.fsync or server.synchronous_commit == "off":
        name = "fsync" if not server.fsync else "synchronous_commit"
        yield _AREA.warning(
            "safety",
            f"{name} is off: a crash of the server loses the latest commits",
            f"set {name} = on where decisions must not be lost",
        )
    if not server.autovacuum:
        yield _AREA.trouble("safety", "autovacuum is off: tables grow", "set autovacuum = on")
    if server.transaction_age > _OLD_TRANSACTIONS:
        yield _AREA.warning(
            "safety",
            f"the oldest transaction id is {server.transaction_age:,} transactions old",
            "see why autovacuum does not freeze it: a long transaction, a slot, a standby",
        )
    if server.connections > _CROWDED * server.most_connections:
        yield _AREA.warning(
            "connections",
            f"{server.connections} of {server.most_connections} are in use",
            "raise max_connections, or lower HEADWAY_DATABASE_CONNECTIONS of the services",
        )
