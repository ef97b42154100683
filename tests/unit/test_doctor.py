"""The findings of `headway doctor`."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from headway.client.http_control import HttpControl
from headway_cli.doctor import nats, postgresql
from headway_cli.doctor.findings import Area, Finding
from headway_cli.doctor.system import check_console, check_local, judge_system
from headway_cli.serve.session import ConsoleAddress
from headway_clock import utc_now
from headway_console.reading.system import (
    Backlog,
    Counts,
    Dispatcher,
    Health,
    Leader,
    Overview,
    StartDelay,
    Throughput,
)
from headway_console.streams import Answering
from headway_dispatcher.public import Inspected
from headway_errors import RequestFailed
from headway_postgres_kit import DatabaseUnavailable, SchemaMismatch
from msgspec.structs import replace

NOW = datetime(2027, 6, 1, 12, 0, tzinfo=UTC)

SERVER = {
    "version": "18.6",
    "now": NOW,
    "standby": False,
    "connections": 10,
    "most_connections": 100,
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "reads": True,
    "writable": [],
}
ANSWERING = [
    Answering(name=name, processes=2, versions=["0.1.0"], endpoints=9)
    for name in ("headway-dispatcher", "headway-scheduler")
]


def stream(
    *,
    used: int = 10,
    replicas: int = 1,
    cluster: dict[str, Any] | None = None,
    **changes: Any,
) -> Inspected:
    info = {
        "config": {"max_bytes": 100 * 1024**2, "num_replicas": replicas},
        "state": {"messages": 1, "bytes": used * 1024**2},
        "cluster": cluster,
    }
    return Inspected(kind="stream", name="HEADWAY_WORK", info=info, **changes)


def consumer(**counts: int) -> Inspected:
    info = {"config": {"max_ack_pending": 100}, **counts}
    return Inspected(kind="consumer", name="HEADWAY_WORK/dispatcher", info=info)


NOTHING = Throughput(at=NOW, completed=0, failed=0, cancelled=0)
OVERVIEW = Overview(
    now=NOW,
    health=Health(
        leader=Leader(holder="vm:1:a", epoch=2, since=NOW, ticked_at=NOW),
        backlogs=[Backlog(name="tick", waiting=0)],
        dispatchers=[Dispatcher(name="d", heard_since=NOW, last_heard_at=NOW)],
    ),
    counts=Counts(
        manifests=1,
        disabled=0,
        blocked=0,
        troubled=0,
        dead_letters=0,
        workers=1,
        slots=5,
        waiting=0,
    ),
    start_delay=StartDelay(runs=0, p50=None, p95=None, p99=None),
    lately=NOTHING,
    day=[],
    coming=[],
    failing=[],
    failures=[],
    groups=[],
)


def job(name: str, *, manifests: int, workers: int) -> SimpleNamespace:
    return SimpleNamespace(name=name, manifests=manifests, workers=workers)


JOBS = [job("import", manifests=2, workers=1), job("idle", manifests=0, workers=0)]


def judged(judge: Callable[..., None], *facts: Any, **others: Any) -> Area:
    area = Area("x")
    judge(area, *facts, **others)
    return area


def server(**changes: Any) -> Area:
    facts = {**SERVER, **changes}
    return judged(postgresql.judge_server, facts, where="db:5432/headway", ours=NOW)


def storage(used: int = 10, write_errors: dict[str, str] | None = None, untested: str = "") -> Area:
    account = {"storage": used * 1024**2, "limits": {"max_storage": 1000 * 1024**2}}
    return judged(nats.judge_storage, account, write_errors or {}, untested)


def broker(version: tuple[int, ...] = (2, 15, 1)) -> Area:
    return judged(nats.judge_server, version, "nats://n:4222")


def items(*inspected: Inspected) -> Area:
    area = Area("x")
    for item in inspected:
        nats.judge_item(area, item)
    return area


def services(answering: list[Answering], version: str = "0.1.0") -> Area:
    return judged(nats.judge_services, answering, version)


def problems(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    found = [finding for finding in findings if finding.verdict != "ok"]
    assert all(finding.remedy for finding in found), "a remedy for each"
    return [(finding.verdict, f"{finding.check}: {finding.found}") for finding in found]


@pytest.mark.parametrize(
    "findings",
    [
        server(),
        judged(postgresql.judge_dispatching, [], []),
        judged(postgresql.judge_transactions, []),
        broker(),
        storage(),
        items(stream(), consumer()),
        services(ANSWERING),
        judge_system(OVERVIEW, JOBS),
    ],
)
def test_a_healthy_part_has_only_ok_findings(findings):
    assert problems(findings) == []
    assert findings


def overview(**changes: object) -> Area:
    return judge_system(replace(OVERVIEW, **changes), JOBS)


STUCK = Backlog(name="tick", waiting=3, oldest_at=NOW - timedelta(seconds=90))
LATE = Backlog(name="dispatcher_outbox", waiting=1, oldest_at=NOW - timedelta(seconds=20))


@pytest.mark.parametrize(
    ("findings", "verdict", "words"),
    [
        (server(version="13.0"), "trouble", "version: PostgreSQL 13.0"),
        (server(standby=True), "trouble", "version: db:5432/headway is a standby"),
        (server(now=NOW + timedelta(seconds=40)), "warning", "clock: it is 40 s ahead of this"),
        (server(now=NOW - timedelta(seconds=5)), "warning", "clock: it is 5 s behind this"),
        (server(fsync="off"), "warning", "safety: fsync is off"),
        (server(synchronous_commit="off"), "warning", "safety: synchronous_commit is off"),
        (server(autovacuum="off"), "warning", "safety: autovacuum is off"),
        (server(connections=90), "warning", "connections: 90 of 100 are in use"),
        (
            server(reads=None),
            "trouble",
            "reading: the console's role headway_reader does not exist",
        ),
        (server(reads=False), "warning", "reading: this user is not a member"),
        (
            server(writable=["scheduler.job"]),
            "trouble",
            "reading: the role headway_reader can change scheduler.job",
        ),
        (
            judged(postgresql.judge_dispatching, [date(2027, 6, 2)], []),
            "warning",
            "history: there is no partition for 202",
        ),
        (
            judged(
                postgresql.judge_transactions,
                [{"pid": 7, "name": "psql", "state": "idle in transaction", "seconds": 70}],
            ),
            "warning",
            "transactions: psql (pid 7) has one open for 70 s (idle in transaction)",
        ),
        (broker(version=(2, 10, 9)), "trouble", "version: nats-server 2.10.9"),
        (storage(800), "warning", "storage: 800.0 of 1,000.0 MiB used"),
        (storage(950), "trouble", "storage: 950.0 of"),
        (
            storage(write_errors={"X": "full"}),
            "trouble",
            "storage: NATS cannot store messages of X",
        ),
        (
            storage(untested="timeout"),
            "warning",
            "storage: it is unknown whether NATS can write",
        ),
        (services(ANSWERING[:1]), "trouble", "services: no scheduler answers on headway.con"),
        (items(Inspected(kind="stream", name="X")), "trouble", "stream: X is missing"),
        (items(Inspected(kind="consumer", name="X/y")), "trouble", "consumer: X/y is missing"),
        (
            items(stream(differs={"max_age": (1, 2)})),
            "warning",
            "stream: HEADWAY_WORK: max_age is 1 and should be 2",
        ),
        (items(stream(cluster={"name": "c"})), "warning", "stream: HEADWAY_WORK has one copy"),
        (items(stream(used=80)), "warning", "stream: HEADWAY_WORK: 80.0 of 100.0 MiB used"),
        (items(stream(used=95)), "trouble", "stream: HEADWAY_WORK: 95.0 of"),
        (
            items(consumer(num_ack_pending=100)),
            "trouble",
            "consumer: HEADWAY_WORK/dispatcher delivers nothing more",
        ),
        (
            overview(health=replace(OVERVIEW.health, leader=None)),
            "warning",
            "leader: no scheduler has ticked yet",
        ),
        (
            overview(health=replace(OVERVIEW.health, backlogs=[STUCK])),
            "trouble",
            "passes: the tick is stuck: 3 waiting, the oldest for 90 s",
        ),
        (
            overview(health=replace(OVERVIEW.health, backlogs=[LATE])),
            "warning",
            "passes: the dispatcher's relay is late",
        ),
        (
            overview(health=replace(OVERVIEW.health, dispatchers=[])),
            "trouble",
            "passes: no dispatcher has sent a heartbeat",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, workers=0)),
            "trouble",
            "workers: none is alive",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, dead_letters=2, blocked=1)),
            "warning",
            "dead letters: 2 open dead letters, 1 manifest blocked",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, troubled=1)),
            "trouble",
            "manifests: 1 cannot be scheduled",
        ),
    ],
)
def test_a_problem_has_its_verdict(findings, verdict, words):
    [(found, text)] = problems(findings)
    assert (found, text.startswith(words)) == (verdict, True), text


class SparseDatabase:
    """A database that answers, but cannot write to its disk."""

    where = "db"

    async def fetch(self, query: str, *_: object) -> list[dict[str, Any]]:
        return [{**SERVER, "now": utc_now()}] if query == postgresql.queries["server"] else []

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator["SparseDatabase"]:
        yield self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["SparseDatabase"]:
        raise DatabaseUnavailable("full")
        yield self


@pytest.mark.parametrize(
    ("mismatch", "expected"),
    [
        ("", []),
        (
            "the schema lacks 1 migration(s): run 'headway migrate'",
            [("trouble", "schema: the schema lacks 1 migration(s)")],
        ),
    ],
)
async def test_disk_and_schemas(monkeypatch, mismatch, expected):
    async def check(database: object) -> None:
        if mismatch:
            raise SchemaMismatch(mismatch)

    monkeypatch.setattr(postgresql, "check_migrations", check)
    disk, *others = problems(await postgresql.check_database(SparseDatabase()))
    assert disk == ("trouble", "disk: PostgreSQL cannot write 20 MB: full")
    assert others == expected


class WithoutJetStream:
    """A broker whose JetStream does not answer."""

    where = "x"
    client = SimpleNamespace(connected_server_version=SimpleNamespace(major=2, minor=15, patch=1))

    async def api(self, verb: str) -> None:
        raise RuntimeError("JetStream is not enabled")


async def test_a_broker_without_jetstream():
    found = problems(await nats.check_broker(WithoutJetStream(), None, []))
    assert found == [("trouble", "jetstream: JetStream is not enabled")]


def test_services_of_several_versions_are_said():
    [(verdict, text), _] = problems(services(ANSWERING, "0.2.0"))
    assert (verdict, text) == ("warning", "services: 2 schedulers, version 0.1.0")


async def test_a_console_that_does_not_answer(monkeypatch):
    async def refuse(*_: object) -> None:
        raise RequestFailed("no answer\nmore")

    monkeypatch.setattr(HttpControl, "show", refuse)
    [finding] = await check_console(ConsoleAddress(url="http://c"))
    assert problems([finding]) == [("trouble", "reach: http://c: no answer")]
    assert finding.remedy.startswith("start 'headway console'")


def test_a_job_that_nobody_serves_is_trouble_if_it_is_used():
    jobs = [job("import", manifests=2, workers=0), job("idle", manifests=0, workers=0)]
    [(verdict, text)] = problems(judge_system(OVERVIEW, jobs))
    assert (verdict, text) == (
        "trouble",
        "jobs: no live worker serves job import of 2 manifests",
    )


def test_local_settings_are_checked(monkeypatch):
    assert problems(check_local()) == []
    monkeypatch.setenv("HEADWAY_GATE_BATCH", "many")
    [(verdict, text)] = problems(check_local())
    assert (verdict, text.startswith("settings: HEADWAY_GATE_BATCH: ")) == ("trouble", True)


def test_clocks_that_nearly_agree_agree():
    for seconds in (1.9, -1.9):
        assert problems(server(now=NOW + timedelta(seconds=seconds))) == []
