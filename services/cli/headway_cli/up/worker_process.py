"""The workers of `up`: child processes, so that a job that hogs its interpreter delays nobody."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE

from headway_embedded import SupervisedProcess
from msgspec import Struct

# The worker's own drain comes after `up` has let runs finish, so it may be short unless the user
# wants otherwise; then the worker needs some seconds more to cancel and hand back what is left.
_DRAIN = "HEADWAY_DRAIN_SECONDS"
_DRAIN_SECONDS = 1.0
_HAND_BACK_SECONDS = 7.0
_LAST_WORDS_SECONDS = 1.0

ShowLine = Callable[[str], None]
Start = Callable[[], Awaitable[SupervisedProcess]]


class PartEnded(Exception):
    """A part ended that never should."""


class Part(Struct, frozen=True, kw_only=True):
    """A process that must live as long as `up` does."""

    name: str
    process: SupervisedProcess
    where: str

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.returncode is not None:
            raise PartEnded(
                f"{self.name} ended by itself with exit code {self.process.returncode}: "
                f"{self.where}"
            )


class WorkerProcess:
    """A worker that cannot outlive us, and whose output is shown line by line."""

    def __init__(self, name: str, start: Start, show_line: ShowLine, drain: float) -> None:
        self._name = name
        self._start = start
        self._show_line = show_line
        self._stop_seconds = drain + _HAND_BACK_SECONDS
        self.part: Part
        self._readers: list[asyncio.Task[None]]

    @classmethod
    async def start(
        cls,
        name: str,
        words: Sequence[str],
        *,
        environment: Mapping[str, str],
        show_line: ShowLine,
    ) -> "WorkerProcess":
        """Start a program that is a worker."""
        drain = float(environment.get(_DRAIN) or _DRAIN_SECONDS)

        async def start() -> SupervisedProcess:
            given = {**environment, _DRAIN: str(drain)}
            return await SupervisedProcess.start(
                words, env=given, cwd=Path.cwd(), stdout=PIPE, stderr=PIPE
            )

        made = cls(name, start, show_line, drain)
        await made._begin()
        return made

    async def _begin(self) -> None:
        process = await self._start()
        self.part = Part(name=self._name, process=process, where="its last words are above")
        self._readers = [
            asyncio.create_task(_show_lines(stream, self._show_line))
            for stream in (process.stdout, process.stderr)
            if stream is not None
        ]

    async def check(self) -> None:
        """Raise if it has failed, once its last words are shown. Who has drained is replaced."""
        if self.part.process.returncode is not None:
            await self._hear_last_words()
        if self.part.process.returncode == 0:
            self._show_line(f"{self._name} has drained; it is started again")
            await self._begin()
        self.part.check()

    async def wait(self) -> int:
        """Its exit code, once it has ended and its last words are shown."""
        code = await self.part.process.wait()
        await self._hear_last_words()
        return code

    async def stop(self) -> None:
        """Let it drain, and show what it says in the meantime."""
        await self.part.process.stop(within=self._stop_seconds)
        await self._hear_last_words()

    def end_what_it_started(self) -> None:
        """End the processes that a program which has ended has left behind in its group."""
        # None left is the rule; then there is no such group, which macOS tells in its own way.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.part.process.process_id, signal.SIGKILL)

    async def _hear_last_words(self) -> None:
        # Not for ever: what a job has started may live on and keep the pipe open.
        await asyncio.wait(self._readers, timeout=_LAST_WORDS_SECONDS)


async def start_app_worker(
    app: str, *, slots: int | None, environment: Mapping[str, str], show_line: ShowLine
) -> WorkerProcess:
    """Start a worker for the app."""
    flags = ["--slots", str(slots)] if slots is not None else []
    return await WorkerProcess.start(
        "the worker",
        [sys.executable, "-m", "headway_cli", "worker", "--app", app, *flags],
        environment={"PYTHONUNBUFFERED": "1", **environment},
        show_line=show_line,
    )


async def _show_lines(stream: asyncio.StreamReader, show_line: ShowLine) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the stream's limit; reading on keeps the worker alive
            show_line("(a very long line of the worker is left out)")
            continue
        if not line:
            return
        show_line(line.decode(errors="replace").rstrip("\r\n"))
