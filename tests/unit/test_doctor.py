"""What `headway doctor` makes of the facts."""

from datetime import UTC, date, datetime, timedelta

import pytest
from headway_cli.doctor.clocks import judge_clock
from headway_cli.doctor.findings import Area, Finding
from headway_cli.doctor.machine import FolderFacts, MachineFacts, gather_machine, judge_machine
from headway_cli.doctor.service_checks import AskedFacts, Job, Person, judge_asked, judge_jobs
from headway_cli.doctor.streams import Provisioned, StreamFacts, judge_services, judge_streams
from headway_cli.doctor.tables import Role, ServerFacts, TableFacts, Transaction, judge_tables
from headway_console.reading.overview import Counts, Overview, Throughput
from headway_console.reading.system import Backlog, Dispatcher, Health, Leader
from headway_console.streams import Answering
from msgspec.structs import replace

NOW = datetime(2027, 6, 1, 12, 0, tzinfo=UTC)

SERVER = ServerFacts(
    version=180_006,
    version_text="18.6",
    now=NOW,
    ours=NOW,
    standby=False,
    connections=10,
    most_connections=100,
    fsync=True,
    synchronous_commit="on",
    autovacuum=True,
    transaction_age=1000,
)
TABLES = TableFacts(
    where="db:5432/headway",
    server=SERVER,
    schemas={"scheduler": "", "dispatcher": ""},
    roles=[
        Role(name="headway_reader", is_there=True, is_ours=True),
        Role(name="headway_enqueue", is_there=True, is_ours=True),
    ],
    writable=[],
    transactions=[],
    missing_days=[],
)
ANSWERING = [
    Answering(name=name, processes=2, versions=["0.1.0"], endpoints=9)
    for name in ("headway-dispatcher", "headway-scheduler")
]
STREAM = Provisioned(name="HEADWAY_WORK", is_there=True, used=10, limit=100)
CONSUMER = Provisioned(name="HEADWAY_WORK/dispatcher", is_there=True, most_unacknowledged=100)
STREAMS = StreamFacts(
    where="nats://n:4222",
    version="2.15.1",
    max_payload=1024**2,
    theirs=NOW,
    ours=NOW,
    storage=10,
    storage_limit=1000,
    streams=[STREAM],
    consumers=[CONSUMER],
    services=ANSWERING,
)
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
ASKED = AskedFacts(
    where="http://c",
    person=Person(name="ada", role="viewer"),
    overview=OVERVIEW,
    ours=NOW,
    jobs=[Job(name="import", manifests=2, workers=1), Job(name="idle", manifests=0, workers=0)],
)
MACHINE = MachineFacts(
    version="0.1.0",
    settings=3,
    wrong={},
    folder=FolderFacts(folder=".headway", exists=True, noted=True, alive=True),
)


def unwell(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(one.remedy for one in findings if one.verdict != "ok"), "a remedy for each"
    return [(one.verdict, f"{one.check}: {one.found}") for one in findings if one.verdict != "ok"]


@pytest.mark.parametrize(
    ("judge", "facts"),
    [
        (judge_tables, TABLES),
        (judge_streams, STREAMS),
        (judge_asked, ASKED),
        (judge_machine, MACHINE),
    ],
)
def test_what_is_well_is_said_to_be(judge, facts):
    findings = judge(facts)
    assert unwell(findings) == []
    assert findings


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"version": 130_000, "version_text": "13.0"}, "trouble", "version: PostgreSQL 13.0"),
        ({"version": 170_000, "version_text": "17.0"}, "warning", "version: PostgreSQL 17.0"),
        ({"standby": True}, "trouble", "version: db:5432/headway is a standby"),
        ({"now": NOW + timedelta(seconds=40)}, "trouble", "clock: it is 40 s ahead of this"),
        ({"now": NOW - timedelta(seconds=5)}, "warning", "clock: it is 5 s behind this"),
        ({"fsync": False}, "warning", "safety: fsync is off"),
        ({"synchronous_commit": "off"}, "warning", "safety: synchronous_commit is off"),
        ({"autovacuum": False}, "trouble", "safety: autovacuum is off"),
        ({"transaction_age": 1_500_000_000}, "warning", "safety: the oldest transaction number"),
        ({"connections": 90}, "warning", "connections: 90 of 100 are in use"),
    ],
)
def test_a_server_that_is_unwell(change, verdict, words):
    [(found, told)] = unwell(judge_tables(replace(TABLES, server=replace(SERVER, **change))))
    assert (found, told.startswith(words)) == (verdict, True), told


READER, ENQUEUE = TABLES.roles


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (
            {"schemas": {"scheduler": "the schema lacks 1 migration(s): run 'headway migrate'"}},
            "trouble",
            "schema: the schema lacks 1 migration(s)",
        ),
        (
            {"roles": [replace(READER, is_there=False), ENQUEUE]},
            "trouble",
            "reading: there is no role headway_reader",
        ),
        ({"roles": [replace(READER, is_ours=False), ENQUEUE]}, "warning", "reading: this user may"),
        ({"write_error": "full"}, "trouble", "disk: PostgreSQL cannot write 20 MB: full"),
        ({"writable": ["scheduler.job"]}, "trouble", "reading: the role headway_reader can change"),
        ({"roles": [READER, replace(ENQUEUE, is_there=False)]}, "warning", "enqueuing: there is"),
        ({"missing_days": [date(2027, 6, 2)]}, "warning", "history: there is no partition for 202"),
        (
            {
                "transactions": [
                    Transaction(pid=7, name="psql", state="idle in transaction", seconds=70)
                ]
            },
            "warning",
            "transactions: psql (pid 7) has one open for 70 s (idle in transaction)",
        ),
    ],
)
def test_tables_that_are_unwell(change, verdict, words):
    [(found, told)] = unwell(judge_tables(replace(TABLES, **change)))
    assert (found, told.startswith(words)) == (verdict, True), told


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"version": "2.10.9"}, "trouble", "version: nats-server 2.10.9"),
        ({"version": "2.12.1"}, "warning", "version: nats-server 2.12.1"),
        ({"max_payload": 1000}, "warning", "payload: it takes messages of 1,000 bytes"),
        ({"problem": "JetStream is not enabled"}, "trouble", "jetstream: JetStream is not enabled"),
        ({"storage": 800}, "warning", "storage: 800 bytes of 1000 bytes used"),
        ({"storage": 950}, "trouble", "storage: 950 bytes of"),
        ({"write_errors": {"X": "full"}}, "trouble", "storage: NATS stores nothing for X: full"),
        ({"untried": "timeout"}, "warning", "storage: it is unknown whether NATS can write"),
        ({"theirs": NOW + timedelta(seconds=3)}, "warning", "clock: it is 3 s ahead"),
        ({"streams": [Provisioned(name="X")]}, "trouble", "stream: X is missing"),
        ({"consumers": [Provisioned(name="X/y")]}, "trouble", "consumer: X/y is missing"),
        (
            {"streams": [replace(STREAM, differs={"max_age": (1, 2)})]},
            "warning",
            "stream: HEADWAY_WORK: max_age is 1 and should be 2",
        ),
        ({"streams": [replace(STREAM, clustered=True)]}, "warning", "stream: HEADWAY_WORK has one"),
        (
            {"streams": [replace(STREAM, clustered=True, copies=3, lagging=["n2"])]},
            "warning",
            "stream: HEADWAY_WORK: the copies on n2 are behind or offline",
        ),
        ({"streams": [replace(STREAM, used=95)]}, "trouble", "stream: HEADWAY_WORK has 95 bytes"),
        ({"consumers": [replace(CONSUMER, pending=20_000)]}, "warning", "consumer: 20,000 mess"),
        (
            {"consumers": [replace(CONSUMER, unacknowledged=100)]},
            "trouble",
            "consumer: HEADWAY_WORK/dispatcher hands out nothing more",
        ),
        ({"services": ANSWERING[:1]}, "trouble", "services: no scheduler answers on headway.con"),
    ],
)
def test_a_broker_that_is_unwell(change, verdict, words):
    [(found, told)] = unwell(judge_streams(replace(STREAMS, **change)))
    assert (found, told.startswith(words)) == (verdict, True), told


def test_services_of_several_versions_are_said():
    [(verdict, told), _] = unwell(judge_services(ANSWERING, "0.2.0"))
    assert (verdict, told) == ("warning", "services: 2 schedulers, version 0.1.0")


def overview(**changes: object) -> AskedFacts:
    return replace(ASKED, overview=replace(OVERVIEW, **changes))


STUCK = Backlog(name="tick", waiting=3, oldest_at=NOW - timedelta(seconds=90))
LATE = Backlog(name="dispatcher_outbox", waiting=1, oldest_at=NOW - timedelta(seconds=20))


@pytest.mark.parametrize(
    ("facts", "verdict", "words"),
    [
        (AskedFacts(where="http://c", problem="gone"), "trouble", "reach: http://c: gone"),
        (
            overview(health=replace(OVERVIEW.health, leader=None)),
            "warning",
            "leader: no scheduler has ticked yet",
        ),
        (
            overview(health=replace(OVERVIEW.health, backlogs=[STUCK])),
            "trouble",
            "passes: the tick is stuck: 3 wait, the oldest for 90 s",
        ),
        (
            overview(health=replace(OVERVIEW.health, backlogs=[LATE])),
            "warning",
            "passes: the dispatcher's relay is late",
        ),
        (
            overview(health=replace(OVERVIEW.health, dispatchers=[])),
            "trouble",
            "passes: no dispatcher was heard of",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, workers=0)),
            "trouble",
            "workers: none is alive",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, dead_letters=2, blocked=1)),
            "warning",
            "dead letters: 2 letters to see to, which block 1 manifest",
        ),
        (
            overview(counts=replace(OVERVIEW.counts, troubled=1)),
            "trouble",
            "manifests: 1 cannot be scheduled",
        ),
        (replace(ASKED, ours=NOW - timedelta(minutes=5)), "trouble", "clock: it is 300 s ahead"),
    ],
)
def test_a_system_that_is_unwell(facts, verdict, words):
    [(found, told)] = unwell(judge_asked(facts))
    assert (found, told.startswith(words)) == (verdict, True), told


def test_a_job_that_nobody_serves_is_trouble_if_it_is_used():
    jobs = [Job(name="import", manifests=2, workers=0), Job(name="idle", manifests=0, workers=0)]
    [(verdict, told)] = unwell(judge_jobs(jobs))
    assert (verdict, told) == (
        "trouble",
        "jobs: no live worker serves job import of 2 manifests",
    )


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"wrong": {"HEADWAY_URL": "no URL"}}, "trouble", "settings: HEADWAY_URL: no URL"),
        (
            {"folder": FolderFacts(folder="f", exists=True, open_files=["f/local.json"])},
            "trouble",
            "secrets: f/local.json can be read by others",
        ),
        (
            {"folder": FolderFacts(folder="f", exists=True, noted=True)},
            "warning",
            "folder: the 'headway up' of f has ended",
        ),
        ({"folder": FolderFacts(folder="f", problem="no JSON")}, "trouble", "folder: no JSON"),
    ],
)
def test_a_machine_that_is_unwell(change, verdict, words):
    [(found, told)] = unwell(judge_machine(replace(MACHINE, **change)))
    assert (found, told.startswith(words)) == (verdict, True), told


def test_what_is_set_here_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWAY_GATE_BATCH", "many")
    (tmp_path / "local.json").write_text("{}")
    (tmp_path / "local.json").chmod(0o644)
    facts = gather_machine(tmp_path)
    assert list(facts.wrong) == ["HEADWAY_GATE_BATCH"]
    assert facts.folder.open_files == [str(tmp_path / "local.json")]
    assert not facts.folder.noted


def test_clocks_that_nearly_agree_agree():
    area = Area("x")
    for seconds, verdict in ((1.9, "ok"), (-1.9, "ok"), (2.1, "warning"), (-31, "trouble")):
        finding = judge_clock(area, NOW + timedelta(seconds=seconds), NOW, "why")
        assert finding.verdict == verdict
