"""`headway top` in a real terminal, and elsewhere."""

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


async def test_it_goes_on_until_q_and_leaves_the_terminal_as_it_was(here, world):
    terminal = await here("--every", "0.2")
    try:
        usual = terminal.modes()
        await terminal.expect("q quits")
        assert terminal.raw.startswith("\x1b[?1049h")  # a screen of its own
        assert "hourly  import" in terminal.text
        async with world.client() as client:
            await client.trigger("by-hand")  # what changes is seen without a key
        await terminal.expect("waiting: 1 ")
        terminal.resize(40, 10)
        terminal.type("x")  # any other key looks again
        terminal.type("q")
        assert await terminal.end() == 0
        assert "\x1b[?1049l" in terminal.raw
        assert "\x1b[?25h" in terminal.raw
        assert terminal.modes() == usual
    finally:
        terminal.close()


async def test_ctrl_c_is_an_end_like_any_other(here):
    terminal = await here()
    try:
        await terminal.expect("q quits")
        terminal.type("\x03")
        assert await terminal.end() == 0
        assert "Traceback" not in terminal.text
        assert terminal.raw.rstrip().endswith("\x1b[?1049l") or "\x1b[?25h" in terminal.raw
    finally:
        terminal.close()


async def test_a_console_that_goes_away_is_said_and_waited_for(here, console):
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


async def test_elsewhere_it_prints_one_frame(here, console, shell):
    done = await shell.run("top", **console.environment("viewer"))
    assert (done.code, done.err) == (0, "")
    assert "passes: all keep up" in done.out
    assert "\x1b" not in done.out
    told = json.loads((await shell.run("top", "--json", **console.environment())).out)
    assert (told["overview"]["counts"]["manifests"], told["runs"]) == (2, [])
