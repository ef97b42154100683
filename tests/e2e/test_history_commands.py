"""The commands `verify`, `rebuild`, `events` and `history export`."""

import asyncio
import json
import signal

import pytest
import pytest_asyncio
from headway import App, Fatal
from support.cadences import when_made_due
from support.servers import needs_embedded
from support.shell import Shell
from support.work_events import queue

UP = """
from headway import App, every
app = App("up")
@app.job("hello")
@every(seconds=1)
async def hello(ctx): ...
"""


def demo() -> App:
    app = App("demo")

    @app.job("good")
    @when_made_due()
    async def good(ctx):
        return "fine"

    @app.job("bad")
    @when_made_due()
    async def bad(ctx):
        raise Fatal("never")

    return app


@pytest_asyncio.fixture
async def demo_world(world):
    """A system in which one run completed and one failed fatally."""
    app = demo()
    await world.run(app)
    await world.until_settled(at_least=2)
    return world


class Command:
    """Run `headway` against the servers of a test."""

    def __init__(self, folder, world=None, console=None) -> None:
        self._shell = Shell(folder)
        self._environment = console.environment() if console else {}
        if world is not None:
            self._environment["HEADWAY_DATABASE_URL"] = world.database_url
            self._environment["HEADWAY_NATS_URL"] = world.nats_url

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await self._shell.start(*arguments, **self._environment)

    async def run(self, *arguments: str) -> tuple[int, list[str], str]:
        done = await self._shell.run(*arguments, **self._environment)
        return done.code, done.out.splitlines(), done.err


@pytest.fixture
def command(world, tmp_path, console) -> Command:
    return Command(tmp_path, world, console)


async def test_verify_checks_ledger_and_tables(demo_world, command):
    code, [line], err = await command.run("verify", "--only", "tables")
    assert code == 0, err
    assert line.startswith("2 pieces of work, 2 runs and 1 dead letter compared with ")
    assert line.endswith(" events: the same")
    code, lines, _ = await command.run("verify")
    assert lines[-2].startswith("2 manifests, ")
    assert lines[-1] == line
    assert code == (0 if lines[-2].endswith("no gaps") else 1), "fired at other times than due"


@pytest.mark.breaks_tables("corrupts a row that verify must name")
async def test_verify_names_each_difference(demo_world, command):
    run = await demo_world.value("SELECT run_id FROM dispatcher.run WHERE state = 'completed'")
    await demo_world.value("UPDATE dispatcher.metadata SET output = '1' WHERE run_id = $1", run)
    code, lines, _ = await command.run("verify", "--only", "tables")
    assert code == 1
    assert lines[0] == f'metadata {run}: output should be "fine" and is 1'
    assert lines[1].endswith("events: 1 difference")
    code, lines, _ = await command.run("verify", "--json")
    answer = json.loads("\n".join(lines))
    assert (code, answer["manifests"], answer["tables"]["differing"]) == (1, 2, 1)
    assert answer["tables"]["differences"] == [
        {
            "table": "metadata",
            "row": str(run),
            "kind": "different",
            "column": "output",
            "expected": "fine",
            "found": 1,
        }
    ]


@pytest.mark.breaks_tables("forges work without an occurrence")
async def test_verify_finds_work_that_the_scheduler_has_not_decided(demo_world, command):
    """Check settled and unsettled forged work; enqueued work is genuine."""
    manifest = await demo_world.value("SELECT id FROM scheduler.manifest WHERE job = 'good'")
    enqueued = await demo_world.value("SELECT headway.enqueue('good')")
    forged = [
        await queue(demo_world, job="good", manifest_id=manifest, manifest="x"),
        await queue(demo_world, job="nobody-has-it"),
    ]
    await demo_world.until(
        "SELECT count(*) FROM dispatcher.work_queue WHERE id = $1 AND state = 'settled'", forged[0]
    )
    await demo_world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", enqueued)
    await demo_world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", forged[1])
    code, lines, _ = await command.run("verify", "--only", "tables")
    assert code == 1
    assert sorted(lines[:-1]) == sorted(
        f"work_queue {work}: the scheduler did not decide it, so it was published by another client"
        for work in forged
    )


async def test_rebuild_refuses_while_services_run_and_then_repairs(demo_world, command):
    code, lines, err = await command.run("rebuild", "--yes")
    assert (code, lines) == (2, [])
    assert "headway: the tables cannot be rebuilt while services run: stop headway-d" in err
    await demo_world.stop()
    demo_world.services.clear()
    await demo_world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    await demo_world.value("UPDATE dispatcher.metadata SET attempt = 9")
    await demo_world.value("DELETE FROM dispatcher.dead_letter")
    code, lines, err = await command.run("rebuild", "--yes")
    assert code == 0, err
    assert lines[:2] == ["dead_letter: 1 row added", "metadata: 2 rows changed"]
    assert lines[2].startswith("2 pieces of work rebuilt from ")
    assert (await command.run("verify", "--only", "tables"))[0] == 0


@pytest.mark.long
async def test_past_events_are_listed(demo_world, command):
    code, lines, err = await command.run("events", "--type", "work.settled", "--type", "run.f*")
    assert code == 0, err
    assert [line.split("  ")[1].strip() for line in lines].count("work.settled") == 2
    [failed] = [line for line in lines if "run.failed" in line]
    assert failed.endswith("Fatal: never")
    _, lines, _ = await command.run("events", "--job", "good", "--json")
    events = [json.loads(line) for line in lines]
    assert [event["type"].split(".", 1)[1] for event in events] == [
        "work.queued.v1",
        "run.dispatched.v1",
        "lease.claimed.v1",
        "run.started.v1",
        "run.completed.v1",
        "work.settled.v1",
    ]
    assert all(event["accepted"] for event in events)
    run = events[-2]["run"]
    _, lines, _ = await command.run("events", "--run", run, "-n", "1", "--json")
    assert json.loads(lines[0])["id"] == events[-2]["id"]


async def test_events_are_followed_until_ctrl_c(world, command):
    app = demo()
    follower = await command.start("events", "--follow", "--json", "--type", "run.*")
    try:
        await world.run(app)
        seen = set()
        async with asyncio.timeout(30):
            while not {"headway.run.completed.v1", "headway.run.failed.v1"} <= seen:
                seen.add(json.loads(await follower.stdout.readline())["type"])
        assert seen == {
            f"headway.run.{name}.v1" for name in ("dispatched", "started", "completed", "failed")
        }
    finally:
        follower.send_signal(signal.SIGINT)
        await follower.communicate()
    assert follower.returncode == 0
    await world.until_settled(at_least=2)


async def test_history_is_exported_as_json_lines(demo_world, command, tmp_path):
    written = await demo_world.value("SELECT count(*) FROM dispatcher.history")
    code, lines, err = await command.run("history", "export")
    assert (code, len(lines)) == (0, written)
    assert f"exported {written} events" in err
    numbers = [json.loads(line)["number"] for line in lines]
    assert numbers == sorted(numbers)
    code, lines, _ = await command.run("history", "export", "-o", "all.jsonl")
    assert (code, lines) == (0, [])
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == written
    assert (await command.run("history", "export", "--until", "2020-01-01 00:00"))[1] == []


@pytest.mark.timeout(300)
@pytest.mark.long
async def test_commands_use_the_data_folder_of_an_up(tmp_path):
    needs_embedded()
    (tmp_path / "app.py").write_text(UP)
    alone = Command(tmp_path)
    up = await alone.start("up", "app.py", "--data", "here")
    try:
        async with asyncio.timeout(60):
            while not (tmp_path / "here" / "running.json").exists():
                assert up.returncode is None
                await asyncio.sleep(0.05)
        assert (tmp_path / "here" / "running.json").stat().st_mode & 0o077 == 0
        follower = await alone.start(
            *("events", "--follow", "--data", "here", "--type", "run.completed", "--json")
        )
        async with asyncio.timeout(30):
            assert json.loads(await follower.stdout.readline())["accepted"]
        follower.send_signal(signal.SIGINT)
        await follower.communicate()
        code, lines, err = await alone.run("verify", "--data", "here")
        assert (code, len(lines)) == (0, 2), (lines, err)
        code, lines, err = await alone.run("doctor", "--data", "here")
        assert (code, lines[-1]) == (0, f"{len(lines) - 1} ok, nothing in trouble"), (lines, err)
    finally:
        up.send_signal(signal.SIGTERM)
        await up.communicate()
    code, _, err = await alone.run("verify", "--only", "tables", "--data", "here")
    assert code == 2
    assert "HEADWAY_DATABASE_URL is not set, and no 'headway up' runs in ./here" in err
    async with asyncio.timeout(60):
        while (done := await alone.run("rebuild", "--yes", "--data", "here"))[0] == 2:
            assert "wait 10 s after its last heartbeat" in done[2], done
    code, [line], _ = done
    assert code == 0
    assert "rebuilt from" in line
