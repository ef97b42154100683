"""`headway doctor` beside real servers: all well, and with something broken of each kind."""

import json

import pytest
import pytest_asyncio
from headway import App, every


@pytest_asyncio.fixture
async def examined(shell, world, console):
    """Services, a worker and an app; what doctor finds of them, by verdict."""
    app = App("patient")

    @app.job("import")
    @every(hours=1)
    async def import_it(ctx): ...

    await world.provision()
    await world.dispatcher(provision="manual")  # what a test takes away stays away
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
        for one in json.loads(done.out):
            said = f"{one['area']} {one['check']}: {one['found']} -> {one['remedy']}"
            by_verdict[one["verdict"]].append(said)
        return done.code, by_verdict

    return examine


async def test_a_healthy_system_is_well(examined):
    code, found = await examined()
    assert (code, found["trouble"]) == (0, [])
    told = "\n".join(found["ok"])
    for words in (
        "console reach: http://127.0.0.1:",
        "(viewer)",
        "system workers: 1 alive",
        "postgresql schema: scheduler has the version of this program",
        "postgresql reading: the console reads with a role that can change nothing",
        "nats services: 1 scheduler, version",
        "HEADWAY_RUNS/worker-import",
    ):
        assert words in told


@pytest.mark.breaks_tables("a migration is forgotten, and the role that reads may write")
async def test_what_is_broken_is_named_with_its_remedy_and_the_rest_is_looked_at(
    examined, world, broker
):
    await broker.api("CONSUMER.DELETE.HEADWAY_SETTLED.scheduler")
    await world.value("DELETE FROM dispatcher.migration WHERE number = 1")
    await world.value("GRANT INSERT ON scheduler.job TO headway_reader")
    await world.value("UPDATE dispatcher.worker SET jobs = '{}'")
    code, found = await examined(HEADWAY_TOKEN="headway_wrong")
    assert code == 1
    told = "\n".join(found["trouble"])
    for words in (
        "does not know you",
        "set HEADWAY_TOKEN to a token of its file",
        "the database's schema 'dispatcher' lacks migrations from 0001_schema on -> run 'head",
        "the role headway_reader can change scheduler.job -> run: REVOKE INSERT",
        "consumer: HEADWAY_SETTLED/scheduler is missing -> run 'headway provision'",
    ):
        assert words in told
    assert any("nats services: 1 dispatcher" in one for one in found["ok"])
    await world.value("REVOKE INSERT ON scheduler.job FROM headway_reader")


async def test_a_job_that_nobody_serves(examined, world):
    await world.stop_workers()
    await world.value("UPDATE dispatcher.worker SET last_heard_at = now() - interval '1 h'")
    code, found = await examined()
    assert code == 1
    assert [one.partition(":")[0] for one in found["trouble"]] == ["system workers", "system jobs"]


@pytest.mark.long
async def test_what_cannot_be_reached_is_one_line_and_the_others_are_looked_at(examined, world):
    code, found = await examined(
        HEADWAY_NATS_URL="nats://127.0.0.1:1", HEADWAY_URL="http://127.0.0.1:1"
    )
    assert code == 1
    assert [one.partition(":")[0] for one in found["trouble"]] == ["console reach", "nats reach"]
    assert any(one.startswith("system workers: 1 alive") for one in found["ok"])  # by the tables


async def test_for_people_each_check_is_a_line(shell, world):
    await world.dispatcher()
    (shell.folder / ".headway").mkdir()
    (shell.folder / ".headway" / "local.json").write_text("{}")
    (shell.folder / ".headway" / "local.json").chmod(0o644)
    done = await shell.run("doctor", "--nats-url", world.nats_url)
    assert (done.code, done.err) == (1, "")
    *lines, summary = done.out.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "trouble") for line in lines)
    assert any(line.startswith("warning  console     reach: not checked") for line in lines)
    assert any("chmod 600" in line for line in lines)
    assert "in trouble" in summary
    done = await shell.run("doctor", "--data", "elsewhere")
    assert (done.code, "there is nothing to check: set HEADWAY_URL" in done.err) == (2, True)
