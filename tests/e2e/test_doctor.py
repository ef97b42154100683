"""`headway doctor` against real servers, healthy and broken."""

import json

import pytest
import pytest_asyncio
from headway import App, every


@pytest_asyncio.fixture
async def doctor(shell, world, console):
    """Start services and a worker; return a function that groups the findings by verdict."""
    app = App("patient")

    @app.job("import")
    @every(hours=1)
    async def import_it(ctx): ...

    await world.provision()
    await world.dispatcher(provision="manual")  # so that removed consumers are not restored
    await world.scheduler(app, tick="off")
    await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")

    async def examine(**environment: str) -> tuple[int, dict[str, list[str]]]:
        known = {
            "HEADWAY_DATABASE_URL": world.database_url,
            "HEADWAY_NATS_URL": world.nats_url,
            **console.environment("viewer"),
            **environment,
        }
        done = await shell.run("doctor", "--json", **known)
        assert done.err == ""
        by_verdict: dict[str, list[str]] = {"ok": [], "warning": [], "trouble": []}
        for check in json.loads(done.out):
            line = f"{check['area']} {check['check']}: {check['found']} -> {check['remedy']}"
            by_verdict[check["verdict"]].append(line)
        return done.code, by_verdict

    return examine


async def test_a_healthy_system_is_well(doctor):
    code, found = await doctor()
    assert (code, found["trouble"]) == (0, [])
    findings = "\n".join(found["ok"])
    for words in (
        "console reach: http://127.0.0.1:",
        "(viewer)",
        "system workers: 1 alive",
        "postgresql schema: it has the version of this program",
        "postgresql reading: the console reads with a role that can change nothing",
        "nats services: 1 scheduler, version",
        "HEADWAY_RUNS/worker-import",
    ):
        assert words in findings


@pytest.mark.breaks_tables("a migration is forgotten, and the role that reads may write")
async def test_each_problem_is_named_with_its_remedy(doctor, world, broker):
    await broker.api("CONSUMER.DELETE.HEADWAY_SETTLED.scheduler")
    await world.value("DELETE FROM dispatcher.migration WHERE number = 1")
    await world.value("GRANT INSERT ON scheduler.job TO headway_reader")
    await world.value("UPDATE dispatcher.worker SET jobs = '{}'")
    code, found = await doctor(HEADWAY_TOKEN="headway_wrong")
    assert code == 1
    findings = "\n".join(found["trouble"])
    for words in (
        "does not know you",
        "set HEADWAY_TOKEN to a token of its file",
        "the database's schema 'dispatcher' lacks migrations from 0001_schema on -> run 'head",
        "the role headway_reader can change scheduler.job -> run: REVOKE INSERT",
        "consumer: HEADWAY_SETTLED/scheduler is missing -> run 'headway provision'",
    ):
        assert words in findings
    assert any("nats services: 1 dispatcher" in line for line in found["ok"])
    await world.value("REVOKE INSERT ON scheduler.job FROM headway_reader")


async def test_a_job_without_a_live_worker(doctor, world):
    await world.stop_workers()
    await world.value("UPDATE dispatcher.worker SET last_heard_at = now() - interval '1 h'")
    code, found = await doctor()
    assert code == 1
    assert [line.partition(":")[0] for line in found["trouble"]] == [
        "system workers",
        "system jobs",
    ]


@pytest.mark.long
async def test_an_unreachable_server_does_not_stop_the_other_checks(doctor, world):
    code, found = await doctor(
        HEADWAY_NATS_URL="nats://127.0.0.1:1", HEADWAY_URL="http://127.0.0.1:1"
    )
    assert code == 1
    assert [line.partition(":")[0] for line in found["trouble"]] == ["console reach", "nats reach"]
    assert any(line.startswith("system workers: 1 alive") for line in found["ok"])


async def test_each_check_is_printed_on_its_own_line(shell, world):
    await world.dispatcher()
    done = await shell.run("doctor", "--nats-url", world.nats_url)
    assert (done.code, done.err) == (1, "")
    *lines, summary = done.out.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "trouble") for line in lines)
    assert any(line.startswith("warning  console     reach: not checked") for line in lines)
    assert any("start one with 'headway scheduler'" in line for line in lines)
    assert "in trouble" in summary
    done = await shell.run("doctor", "--data", "elsewhere")
    assert (done.code, "HEADWAY_URL is not set, and no 'headway up' runs in" in done.err) == (
        2,
        True,
    )
