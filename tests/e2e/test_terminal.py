"""Commands in a terminal: they ask for confirmation, show progress and complete options."""

import json
import shutil
import sys
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from headway_cli.serve.find_app import load_app
from support.shell import Done
from support.terminal import open_program, open_terminal

pytestmark = pytest.mark.thorough

APP = """
import asyncio
from headway import App, manual, retry
app = App("good")
@app.job("count", group="sums", max_active=4)
@retry(attempts=1)
async def count(ctx, number: int):
    if number < 0:
        raise ValueError("less than nothing")
    for step in range(number):
        ctx.progress(10 * step, "counting")
        await asyncio.sleep(0.2)
app.schedule("by-hand", job=count, when=manual(), input=1)
app.schedule("slowly", job=count, when=manual(), input=9)
"""

YAML = """
app: good
jobs: {count: {}}
manifests:
  other: {job: count, input: 3, manual: true}
"""


@pytest_asyncio.fixture
async def here(shell, world, console):
    """A shell beside a scheduler with a declared app."""
    (shell.folder / "app.py").write_text(APP)
    (shell.folder / "other.yaml").write_text(YAML)
    shell.app = load_app(str(shell.folder / "app.py"))
    await world.scheduler_of_files(shell.app, tick="off")
    shell.environment = console.environment()

    async def run(*arguments: str) -> Done:
        return await shell.run(*arguments, **shell.environment)

    @asynccontextmanager
    async def terminal(*arguments: str, **options):
        made = await open_terminal(*arguments, folder=shell.folder, **options, **shell.environment)
        try:
            yield made
        finally:
            made.close()

    shell.headway, shell.terminal = run, terminal
    return shell


async def test_destructive_commands_ask_for_confirmation(here):
    done = await here.headway("apply", "other.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.complaints == [
        "headway: cannot ask for confirmation here: add --yes to apply it and delete 2 manifests with "
        "all runs and dead letters (by-hand, slowly); see 'headway apply --help'"
    ]
    async with here.terminal("apply", "other.yaml") as terminal:
        await terminal.expect("(by-hand, slowly)? [y/N]:")
        terminal.type("n\n")
        assert await terminal.end() == 130
        assert "headway: nothing was changed" in terminal.text
    listed = json.loads((await here.headway("manifests", "--json")).out)
    assert [manifest["external_id"] for manifest in listed] == ["by-hand", "slowly"]
    async with here.terminal("apply", "other.yaml") as terminal:
        await terminal.expect("[y/N]:")
        terminal.type("y\n")
        assert await terminal.end() == 0
        assert "- by-hand  deleted" in terminal.text
    assert (await here.headway("apply", "app.py", "--yes")).code == 0


async def test_a_cancel_of_many_shows_their_number(here, world):
    assert (await here.headway("cancel", "--group", "sums")).code == 0  # no work is queued
    for _ in range(2):
        assert (await here.headway("enqueue", "count", "--input", "1")).code == 0
    await world.dispatcher()
    await world.until("SELECT count(*) = 2 FROM dispatcher.work_queue")
    done = await here.headway("cancel", "--group", "sums")
    assert done.code == 2
    assert (
        "add --yes to cancel 2 pieces of work (0 running, the others wait) of group sums"
        in done.err
    )
    async with here.terminal("cancel", "--group", "sums") as terminal:
        await terminal.expect(
            "cancel 2 pieces of work (0 running, the others wait) of group sums? [y/N]:"
        )
        terminal.type("y\n")
        assert await terminal.end() == 0
        assert "group sums: 2 settled" in terminal.text
    await world.until_settled(at_least=2)


@pytest.mark.long
async def test_wait_shows_progress_only_in_a_terminal(here, world):
    await world.serve(here.app)
    done = await here.headway("trigger", "by-hand", "--wait")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == "by-hand: queued"
    assert ": completed after " in done.out
    done = await here.headway("enqueue", "count", "--input", "-1", "--wait", "--json")
    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out)["status"]["outcome"] != "completed"
    async with here.terminal("trigger", "slowly", "--wait", columns=100) as terminal:
        await terminal.expect("counting")
        await terminal.expect(" of 100")
        assert await terminal.end() == 0
        assert ": completed after " in terminal.text
        assert (
            terminal.raw.endswith("\r\n") or "\x1b[?25h" in terminal.raw
        )  # the cursor is restored
    await world.until_settled(at_least=3)


async def test_ctrl_c_stops_waiting_but_not_the_work(here):
    async with here.terminal("trigger", "slowly", "--wait") as terminal:
        await terminal.expect("on its way")
        terminal.type("\x03")
        assert await terminal.end() == 130
        assert "Traceback" not in terminal.text


async def test_bash_completes_commands_and_options(here):
    """Press Tab in a real bash."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    program = here.folder / "headway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headway_cli "$@"\n')
    program.chmod(0o755)
    made = await open_program(
        *(bash, "--norc", "--noprofile", "-i"),
        folder=here.folder,
        columns=120,
        PATH=f"{here.folder}:/usr/bin:/bin",
        PS1="ready> ",
        **here.environment,
    )
    try:
        made.type('eval "$(headway completion bash)"; echo lo""aded\n')
        await made.expect("loaded")
        for typed, completed in (
            ("headway rebu\t", "headway rebuild "),
            ("headway enqueue --pri\t", "headway enqueue --priority "),
        ):
            made.type(typed)
            await made.expect(completed)
            made.type("\x15")  # clear the line
    finally:
        made.close()


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
async def test_every_shell_gets_a_script(shell, shell_name):
    done = await shell.run("completion", shell_name)
    assert (done.code, done.err) == (0, "")
    assert f"_HEADWAY_COMPLETE={shell_name}_complete" in done.out
