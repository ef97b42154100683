"""Child processes of `up`: workers run apart, so that a busy job delays no service."""

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

from headway_cli.serve.running import PartEnded

# `up` waits for runs before it stops the worker, so the worker's own drain is short unless the user
# sets it. The worker needs some seconds more to cancel and hand back what is left.
_DRAIN = "HEADWAY_DRAIN_SECONDS"
_DRAIN_SECONDS = 1.0
_HAND_BACK_SECONDS = 7.0
_LAST_OUTPUT_SECONDS = 1.0

ShowLine = Callable[[str], None]
Start = Callable[[], Awaitable[SupervisedProcess]]


class Part(Struct, frozen=True, kw_only=True):
    """A process that must run as long as `up` does."""

    name: str
    process: SupervisedProcess
    where: str

    def check(self) -> None:
        """Raise if the process has ended."""
        if self.process.returncode is not None:
            raise PartEnded(
                f"{self.name} exited unexpectedly with code {self.process.returncode}: {self.where}"
            )


class WorkerProcess:
    """A worker that cannot outlive this process, and whose output is shown line by line."""

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
        """Start a worker program."""
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
        self.part = Part(name=self._name, process=process, where="see its output above")
        self._readers = [
            asyncio.create_task(_show_lines(stream, self._show_line))
            for stream in (process.stdout, process.stderr)
            if stream is not None
        ]

    async def check(self) -> None:
        """Raise if it failed, after its last output is shown; restart it if it has drained."""
        if self.part.process.returncode is not None:
            await self._show_last_output()
        if self.part.process.returncode == 0:
            self._show_line(f"{self._name} has drained; restarting it")
            await self._begin()
        self.part.check()

    async def wait(self) -> int:
        """Wait until it ends and its last output is shown; returns its exit code."""
        code = await self.part.process.wait()
        await self._show_last_output()
        return code

    async def stop(self) -> None:
        """Let it drain, and show its output meanwhile."""
        await self.part.process.stop(within=self._stop_seconds)
        await self._show_last_output()

    def kill_descendants(self) -> None:
        """Kill processes that an ended program has left in its group."""
        # Without any there is no such group, which macOS reports as a permission error.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.part.process.process_id, signal.SIGKILL)

    async def _show_last_output(self) -> None:
        # Limited: a process that a job has started may live on and keep the pipe open.
        await asyncio.wait(self._readers, timeout=_LAST_OUTPUT_SECONDS)


async def start_app_worker(
    app: str, *, slots: int | None, environment: Mapping[str, str], show_line: ShowLine
) -> WorkerProcess:
    """Start the worker of the app."""
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
        except (
            ValueError
        ):  # longer than the limit of the stream; keep reading, or the worker would block
            show_line("(a very long line of the worker is omitted)")
            continue
        if not line:
            return
        show_line(line.decode(errors="replace").rstrip("\r\n"))
