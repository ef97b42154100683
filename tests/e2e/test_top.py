"""`headway top` in a real terminal and without one."""

import json

import pytest
import pytest_asyncio
from headway import App, every, manual
from support.terminal import open_terminal

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def here(world, console, tmp_path):
    app = App("shown")

    @app.job("import", group="ops")
    async def import_it(ctx): ...

    app.schedule("by-hand", job=import_it, when=manual())
    app.schedule("hourly", job=import_it, when=every(hours=1))
    await world.dispatcher()
    await world.scheduler(app, tick="off")

    async def terminal(*arguments: str, **size: int):
        return await open_terminal(
            "top", *arguments, folder=tmp_path, **size, **console.environment("viewer")
        )

    return terminal


async def test_it_runs_until_q_and_restores_the_terminal(here, world):
    terminal = await here("--every", "0.2")
    try:
        usual = terminal.modes()
        await terminal.expect("q quits")
        assert terminal.raw.startswith("\x1b[?1049h")  # the alternate screen
        assert "hourly  import" in terminal.text
        async with world.client() as client:
            await client.trigger("by-hand")  # the change is shown without a key press
        await terminal.expect("waiting: 1 ")
        terminal.resize(40, 10)
        terminal.type("x")  # any other key is ignored
        terminal.type("q")
        assert await terminal.end() == 0
        assert "\x1b[?1049l" in terminal.raw
        assert "\x1b[?25h" in terminal.raw
        assert terminal.modes() == usual
    finally:
        terminal.close()


async def test_ctrl_c_ends_it_cleanly(here):
    terminal = await here()
    try:
        await terminal.expect("q quits")
        terminal.type("\x03")
        assert await terminal.end() == 0
        assert "Traceback" not in terminal.text
        assert terminal.raw.rstrip().endswith("\x1b[?1049l") or "\x1b[?25h" in terminal.raw
    finally:
        terminal.close()


async def test_a_console_that_stops_is_reported_and_retried(here, console):
    terminal = await here("--every", "0.2", columns=200)
    try:
        await terminal.expect("q quits")
        await console.service.server.stop()
        await terminal.expect("does not answer")
        await terminal.expect("trying again")
        terminal.type("q")
        assert await terminal.end() == 0
    finally:
        terminal.close()


async def test_without_a_terminal_it_prints_one_frame(here, console, shell):
    done = await shell.run("top", **console.environment("viewer"))
    assert (done.code, done.err) == (0, "")
    assert "passes: all keep up" in done.out
    assert "\x1b" not in done.out
    frame = json.loads((await shell.run("top", "--json", **console.environment())).out)
    assert (frame["overview"]["counts"]["manifests"], frame["runs"]) == (2, [])
