"""The README, as a newcomer follows it: its app, and its commands in a second terminal."""

import re
import signal
from pathlib import Path

from support.shell import Shell
from support.up import Place
from support.world import until

README = Path(__file__).parents[2] / "README.md"


async def test_a_newcomer_gets_a_failure_explained_and_mends_it(tmp_path):
    text = README.read_text()
    [app] = re.findall(r"```python\n(# app\.py\n.*?)```", text, re.DOTALL)
    [explain] = re.findall(r"^\$ headway (explain .*)$", text, re.MULTILINE)
    [retry] = re.findall(r"`headway (dead-letters retry .*?)`", text)
    place, shell = Place(tmp_path), Shell(tmp_path)
    place.data = tmp_path / ".headway"
    place.app.write_text(app)

    async def is_explained() -> bool:
        return "dead letter" in (await shell.run(*explain.split())).out

    async def is_retried() -> bool:
        return "1 retried" in (await shell.run(*retry.split(), "--yes")).out

    async with place.up() as up:
        await until(is_explained, within=60, what="the failure is explained")
        up.process.send_signal(signal.SIGINT)
        await up.end()
    place.app.write_text(re.sub(r"raise .*", "return", app))
    async with place.up() as up:
        await until(is_retried, within=60, what="the dead letter is retried")
        up.process.send_signal(signal.SIGINT)
        await up.end()
    await place.until_nothing_is_left(within=10)
