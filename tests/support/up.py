"""The command `headway up` in a folder of its own."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from support.world import until

CLEAN = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}
APP = """
from headway import App, every
app = App("hello")
@app.job("hello")
@every(seconds=1)
async def hello(ctx):
    print("hello from a job")
"""

FAILING = """
from headway import App, every, retry
app = App("trial")
@app.job("import")
@every(seconds=2)
@retry(attempts=2, interval=1)
def import_(ctx):
    raise ValueError("no rows")
"""


# This app imports once, in `up` itself, and fails in the worker.
IMPORTS_ONCE = """
from pathlib import Path
from headway import App
Path(__file__).with_name("imported").touch(exist_ok=False)
app = App("once")
"""


# A worker command that fails at first, and then starts a child that `up` must stop.
OTHER = """
import os, signal, subprocess, sys, time
from pathlib import Path
if sys.argv[1:] == ["child"]:
    time.sleep(600)
first = Path(__file__).with_name("first")
if not first.exists():
    first.touch()
    sys.exit(3)
subprocess.Popen([sys.executable, __file__, "child"])
print("other worker on", os.environ["HEADWAY_NATS_URL"], flush=True)
signal.signal(signal.SIGTERM, lambda *_: (print("other worker drains", flush=True), sys.exit()))
signal.pause()
"""


class Up:
    """A `headway up` process, with its log so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while line := await self.process.stderr.readline():
            self.log += line.decode()

    async def until(self, condition: Callable[[], bool], what: str, within: float = 30) -> None:
        """Wait for a condition as long as the process lives."""

        async def ask() -> bool:
            return condition() or self.process.returncode is not None

        try:
            await until(ask, within=within, what=what)
            assert condition(), f"it ended before {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    async def until_logged(self, words: str) -> None:
        await self.until(lambda: words in self.log, words)

    async def end(self, within: float = 30) -> int:
        """Wait for the end, read the rest of the log, and return the exit code."""
        async with asyncio.timeout(within):
            await self._reader
            return await self.process.wait()

    async def report(self) -> dict:
        """Return the last line of its standard output, as JSON."""
        return json.loads((await self.process.stdout.read()).decode().splitlines()[-1])


class Place:
    """A folder with an app and a data folder, in which `up` runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.app = folder / "app.py"
        self.app.write_text(APP)

    def command(self, *arguments: str) -> list[str]:
        up = [sys.executable, "-m", "headway_cli", "up", str(self.app)]
        return [*up, "--data", str(self.data), *arguments]

    @contextlib.asynccontextmanager
    async def up(self, *arguments: str, **environment: str) -> AsyncIterator[Up]:
        process = await asyncio.create_subprocess_exec(
            *self.command(*arguments),
            env={**CLEAN, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            yield Up(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def left_behind(self) -> list[str]:
        """List the processes that name this folder or run in it."""
        return [
            f"{process.name} {words}"
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and int(process.name) != os.getpid()
            for words in [_words_of(process)]
            if str(self.folder) in words
        ]

    async def until_nothing_is_left(self, within: float) -> None:
        async def nothing_is_left() -> bool:
            return not self.left_behind()

        try:
            await until(nothing_is_left, within=within, what="nothing is left behind")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.left_behind()}") from None


def _words_of(process: Path) -> str:
    try:
        state = (process / "stat").read_text().rpartition(") ")[2][0]
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return "" if state == "Z" else f"{words} in {(process / 'cwd').readlink()}"
    except OSError:  # it has just ended
        return ""


async def get(address: str, path: str) -> str:
    """Return the body of a plain HTTP response."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2].strip()
