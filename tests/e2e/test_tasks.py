"""Seven tasks of an operator, each with one command; `tests/browser/test_tasks.py` counts clicks."""

import json

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


async def test_what_waits_and_for_what(desk, world):
    for manifest in ("archive", "archive-2"):
        await desk.run("trigger", manifest)
    await world.until("SELECT true FROM dispatcher.waiting WHERE reason = 'group_cap'")
    assert "group cap" in await desk.do("work", "--state", "queued")


async def test_a_dead_letter_is_retried_with_an_edited_input(desk, world):
    await desk.run("enqueue", "ship", "--input", json.dumps({"item": "needle"}))
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    desk.shown.broken = False
    edited = json.dumps({"item": "chair"})
    assert "runs again" in await desk.do("dead-letters", "retry", str(letter), "--input", edited)
    await world.until("SELECT true FROM dispatcher.run WHERE output = $1", {"shipped": "chair"})


async def test_everything_is_paused(desk, world):
    assert "4 manifests paused" in await desk.do("pause", "--all", "--for", "3600")
