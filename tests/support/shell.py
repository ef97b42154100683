"""The `headway` command in a process of its own, as a shell runs it."""

import asyncio
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from support.command_server import run_command


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Return the message to the user, without log lines before it."""
        assert "Traceback" not in self.err, self.err
        logged = re.compile(r"\d{4}-\d\d-\d\d ")
        lines = [line for line in self.err.splitlines() if not logged.match(line)]
        assert all(line.startswith("headway: ") for line in lines), self.err
        return lines


class Shell:
    """Runs commands in a folder, without any setting but those given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def start(self, *arguments: str, **environment: str) -> asyncio.subprocess.Process:
        """Start a command from nothing, to be watched and stopped."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway_cli", *arguments),
            cwd=self.folder,
            env=self._clean(environment),
            stdout=PIPE,
            stderr=PIPE,
        )

    async def run(self, *arguments: str, **environment: str) -> Done:
        """Run a command to its end."""
        code, out, err = await asyncio.to_thread(
            run_command, arguments, self.folder, self._clean(environment)
        )
        return Done(code, out.decode(), err.decode())

    def _clean(self, environment: dict[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}
        return {**inherited, **environment}
