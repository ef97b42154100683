"""The findings of `headway doctor`."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from headway_cli.doctor import nats, postgresql
from headway_cli.doctor.findings import Area, Finding
from headway_cli.doctor.system import Job, check_local, judge_failure, judge_system
from headway_clock import utc_now
from headway_console.reading.system import (
    Backlog,
    Counts,
    Dispatcher,
    Health,
    Leader,
    Overview,
    Throughput,
)
from headway_console.streams import Answering
from headway_dispatcher.public import Inspected
from headway_errors import RequestFailed
from headway_postgres_kit import DatabaseUnavailable, SchemaMismatch
from msgspec.structs import replace

NOW = datetime(2027, 6, 1, 12, 0, tzinfo=UTC)

SERVER = {
    "version": 180_006,
    "version_text": "18.6",
    "now": NOW,
    "standby": False,
    "connections": 10,
    "most_connections": 100,
    "fsync": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "reads": True,
    "transaction_age": 1000,
}
ANSWERING = [
    Answering(name=name, processes=2, versions=["0.1.0"], endpoints=9)
    for name in ("headway-dispatcher", "headway-scheduler")
]


def stream(
    *,
    ts: datetime = NOW,
    used: int = 10,
    replicas: int = 1,
    cluster: dict[str, Any] | None = None,
    **changes: Any,
) -> Inspected:
    info = {
        "config": {"max_bytes": 100, "num_replicas": replicas},
        "state": {"messages": 1, "bytes": used},
        "cluster": cluster,
        "ts": ts.isoformat(),
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
        manifests=1, disabled=0, blocked=0, troubled=0, dead_letters=0, workers=1, slots=5
    ),
    lately=NOTHING,
    day=[],
    coming=[],
    failing=[],
    failures=[],
    groups=[],
)
JOBS = [Job(name="import", manifests=2, workers=1), Job(name="idle", manifests=0, workers=0)]


def judged(judge: Callable[..., None], *facts: Any, **others: Any) -> Area:
    area = Area("x")
    judge(area, *facts, **others)
    return area


def server(**changes: Any) -> Area:
    facts = {**SERVER, **changes}
    return judged(postgresql.judge_server, facts, where="db:5432/headway", ours=NOW)


def storage(used: int = 10, write_errors: dict[str, str] | None = None, untested: str = "") -> Area:
    account = {"storage": used, "limits": {"max_storage": 1000}}
    return judged(nats.judge_storage, account, write_errors or {}, untested)


def broker(version: tuple[int, ...] = (2, 15, 1), max_payload: int = 1024**2) -> Area:
    return judged(nats.judge_server, version, max_payload, "nats://n:4222")


def items(*inspected: Inspected) -> Area:
    return judged(nats.judge_items, list(inspected), NOW)


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
        judged(postgresql.judge_reading, True, []),
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


LAGGING = {"name": "c", "replicas": [{"name": "n2", "current": False}, {"name": "n3"}]}
STUCK = Backlog(name="tick", waiting=3, oldest_at=NOW - timedelta(seconds=90))
LATE = Backlog(name="dispatcher_outbox", waiting=1, oldest_at=NOW - timedelta(seconds=20))


@pytest.mark.parametrize(
    ("findings", "verdict", "words"),
    [
        (server(version=130_000, version_text="13.0"), "trouble", "version: PostgreSQL 13.0"),
        (server(version=170_000, version_text="17.0"), "warning", "version: PostgreSQL 17.0"),
        (server(standby=True), "trouble", "version: db:5432/headway is a standby"),
        (server(now=NOW + timedelta(seconds=40)), "trouble", "clock: it is 40 s ahead of this"),
        (server(now=NOW - timedelta(seconds=5)), "warning", "clock: it is 5 s behind this"),
        (server(fsync="off"), "warning", "safety: fsync is off"),
        (server(synchronous_commit="off"), "warning", "safety: synchronous_commit is off"),
        (server(autovacuum="off"), "trouble", "safety: autovacuum is off"),
        (server(transaction_age=1_500_000_000), "warning", "safety: the oldest transaction id"),
        (server(connections=90), "warning", "connections: 90 of 100 are in use"),
        (
            judged(postgresql.judge_reading, None, []),
            "trouble",
            "reading: the console's role headway_reader does not exist",
        ),
        (
            judged(postgresql.judge_reading, False, []),
            "warning",
            "reading: this user is not a member",
        ),
        (
            judged(postgresql.judge_reading, True, ["scheduler.job"]),
            "trouble",
            "reading: the role headway_reader can change",
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
        (broker(version=(2, 12, 1)), "warning", "version: nats-server 2.12.1"),
        (broker(max_payload=1000), "warning", "payload: the largest message is 1,000 bytes"),
        (storage(800), "warning", "storage: 800 bytes of 1000 bytes used"),
        (storage(950), "trouble", "storage: 950 bytes of"),
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
        (items(stream(ts=NOW + timedelta(seconds=3))), "warning", "clock: it is 3 s ahead"),
        (items(Inspected(kind="stream", name="X")), "trouble", "stream: X is missing"),
        (items(Inspected(kind="consumer", name="X/y")), "trouble", "consumer: X/y is missing"),
        (
            items(stream(differs={"max_age": (1, 2)})),
            "warning",
            "stream: HEADWAY_WORK: max_age is 1 and should be 2",
        ),
        (items(stream(cluster={"name": "c"})), "warning", "stream: HEADWAY_WORK has one copy"),
        (
            items(stream(cluster=LAGGING, replicas=3)),
            "warning",
            "stream: HEADWAY_WORK: the copies on n2 are behind or offline",
        ),
        (items(stream(used=80)), "warning", "stream: HEADWAY_WORK has 80 bytes"),
        (items(stream(used=95)), "trouble", "stream: HEADWAY_WORK has 95 bytes"),
        (items(consumer(num_pending=20_000)), "warning", "consumer: 20,000 messages wait"),
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


class Schema:
    """The migrations of a schema, with the problem that their check finds."""

    def __init__(self, schema: str, problem: str = "") -> None:
        self.schema, self.problem = schema, problem

    async def check(self, database: object) -> None:
        if self.problem:
            raise SchemaMismatch(self.problem)


@pytest.mark.parametrize(
    ("schemas", "expected"),
    [
        (
            [Schema("scheduler"), Schema("dispatcher")],
            [("warning", "enqueuing: no role headway_enqueue may enqueue by SQL")],
        ),
        (
            [Schema("scheduler", "lacks 1 migration(s): run 'headway migrate'")],
            [("trouble", "schema: lacks 1 migration(s)")],
        ),
    ],
)
async def test_disk_schemas_and_the_role_that_enqueues(monkeypatch, schemas, expected):
    async def missing(database: object) -> bool:
        return True

    monkeypatch.setattr(postgresql, "MIGRATIONS", schemas)
    monkeypatch.setattr(postgresql, "enqueue_role_is_missing", missing)
    disk, *others = problems(await postgresql.check_database(SparseDatabase()))
    assert disk == ("trouble", "disk: PostgreSQL cannot write 20 MB: full")
    assert others == expected


class WithoutJetStream:
    """A broker whose JetStream does not answer."""

    where = "x"
    client = SimpleNamespace(
        connected_server_version=SimpleNamespace(major=2, minor=15, patch=1),
        max_payload=1024**2,
    )

    async def api(self, verb: str) -> None:
        raise RuntimeError("JetStream is not enabled")


async def test_a_broker_without_jetstream():
    found = problems(await nats.check_broker(WithoutJetStream(), None, []))
    assert found == [("trouble", "jetstream: JetStream is not enabled")]


def test_services_of_several_versions_are_said():
    [(verdict, text), _] = problems(services(ANSWERING, "0.2.0"))
    assert (verdict, text) == ("warning", "services: 2 schedulers, version 0.1.0")


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("no answer\nmore", "start 'headway console'"),
        ("it does not know you", "set HEADWAY_TOKEN"),
        ("the answer cannot be read", "let HEADWAY_URL name a console"),
    ],
)
def test_a_console_that_does_not_answer(problem, remedy):
    [finding] = judged(judge_failure, "http://c", RequestFailed(problem))
    assert problems([finding]) == [("trouble", f"reach: http://c: {problem.splitlines()[0]}")]
    assert finding.remedy.startswith(remedy)


def test_a_job_that_nobody_serves_is_trouble_if_it_is_used():
    jobs = [Job(name="import", manifests=2, workers=0), Job(name="idle", manifests=0, workers=0)]
    [(verdict, text)] = problems(judge_system(OVERVIEW, jobs))
    assert (verdict, text) == (
        "trouble",
        "jobs: no live worker serves job import of 2 manifests",
    )


def test_local_settings_and_the_data_folder_are_checked(tmp_path, monkeypatch):
    assert problems(check_local(tmp_path / "absent")) == []
    monkeypatch.setenv("HEADWAY_GATE_BATCH", "many")
    (tmp_path / "local.json").write_text("{}")
    (tmp_path / "local.json").chmod(0o644)
    (tmp_path / "running.json").touch(mode=0o600)
    (tmp_path / "running.json").write_text('{"nats_url": "x", "pid": 999999999}')
    starts = [
        ("trouble", "settings: HEADWAY_GATE_BATCH: "),
        ("trouble", f"secrets: {tmp_path / 'local.json'} can be read by others"),
        ("warning", f"folder: the 'headway up' of {tmp_path} ended without a clean stop"),
    ]
    found = problems(check_local(tmp_path))
    assert [verdict for verdict, _ in found] == [verdict for verdict, _ in starts]
    assert all(text.startswith(words) for (_, text), (_, words) in zip(found, starts, strict=True))
    (tmp_path / "running.json").write_text("[]")
    [*_, (verdict, text)] = problems(check_local(tmp_path))
    assert (verdict, "cannot be read" in text) == ("trouble", True)


def test_clocks_that_nearly_agree_agree():
    for seconds, verdict in ((1.9, "ok"), (-1.9, "ok"), (2.1, "warning"), (-31, "trouble")):
        area = judged(Area.clock, NOW + timedelta(seconds=seconds), NOW, "why")
        assert [finding.verdict for finding in area] == [verdict]
