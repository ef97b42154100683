"""Seven tasks of an operator, each with one command; `tests/browser/test_tasks.py` counts clicks."""

import asyncio
import json
import re

import pytest_asyncio
from headway import every
from support.shell import Done, Shell
from support.troubled_app import TroubledApp


class Desk:
    """An operator with a terminal, beside a system with trouble."""

    def __init__(self, shell: Shell, environment: dict[str, str], shown: TroubledApp) -> None:
        self.shell, self.environment, self.shown = shell, environment, shown

    async def run(self, *arguments: str) -> Done:
        return await self.shell.run(*arguments, **self.environment)

    async def do(self, *arguments: str) -> str:
        """Do a task with one command; returns its output."""
        done = await self.run(*arguments)
        assert (done.code, done.err) == (0, "")
        return done.out


@pytest_asyncio.fixture
async def desk(world, shell, console):
    shown = TroubledApp()
    shown.app.schedule("hourly", job="ship", when=every(hours=1), input={"item": "lamp"})
    await world.scheduler(shown.app)
    await world.serve(shown.app)
    yield Desk(shell, console.environment(), shown)
    shown.release()


async def test_why_a_manifest_did_not_run_at_a_time(desk, world):
    await desk.run("disable", "hourly")
    due = await world.value("SELECT date_trunc('hour', clock_timestamp()) - interval '1 hour'")
    # As if it had been declared a month ago.
    await world.value(
        "WITH backdated AS (UPDATE scheduler.manifest SET next_due_at = $1,"
        " declared_at = declared_at - interval '30 days' WHERE external_id = 'hourly' RETURNING id)"
        " UPDATE scheduler.timing SET since = since - interval '30 days'"
        " FROM backdated WHERE manifest_id = backdated.id",
        due,
    )
    text = await desk.do("explain", "hourly", "--at", f"{due:%Y-%m-%d %H:%M}")
    assert "it is disabled" in text


async def test_what_waits_and_the_log_of_what_runs(desk, world):
    for manifest in ("archive", "archive-2"):
        await desk.run("trigger", manifest)
    await world.until("SELECT true FROM dispatcher.waiting WHERE reason = 'group_cap'")
    assert "group cap" in await desk.do("work", "--state", "queued")

    run = await world.until("SELECT run_id FROM dispatcher.run WHERE started_at IS NOT NULL")
    following = await desk.shell.start("logs", str(run), "--follow", **desk.environment)
    for line in ("first line", "second line"):
        desk.shown.say(line)
        async with asyncio.timeout(30):
            while line.encode() not in await following.stdout.readline():
                pass
    desk.shown.release()
    await following.communicate()
    assert following.returncode == 0


async def test_which_job_fails_with_which_input_and_a_retry_with_another(desk, world):
    await desk.run("enqueue", "ship", "--input", json.dumps({"item": "needle"}))
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    _, first, *_ = (await desk.do("failing")).splitlines()
    assert re.match(r"ship +100 % +2 +2 ", first)
    found = (await desk.do("runs", "--text", "needle")).splitlines()
    assert [re.search(r" failed +([12]) ", line)[1] for line in found[1:3]] == ["2", "1"]
    assert " failed " not in await desk.do("runs", "--text", "haystack")

    desk.shown.broken = False
    edited = json.dumps({"item": "chair"})
    assert "runs again" in await desk.do("dead-letters", "retry", str(letter), "--input", edited)
    await world.until("SELECT true FROM dispatcher.run WHERE output = $1", {"shipped": "chair"})


async def test_everything_is_paused(desk):
    assert "4 manifests" in await desk.do("pause", "--all", "--for", "3600", "--yes")
