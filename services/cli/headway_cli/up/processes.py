"""Child processes of `up`: workers run apart, so that a busy job delays no service.

A worker that ends is restarted, with a growing pause if it ends at once. The app's own worker must
not fail. A worker command, in any language, may: its author is about to fix it.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE

import click
from headway_clock import monotonic
from headway_embedded import EmbeddedError, SupervisedProcess
from headway_jetstream_kit.tasks import end
from headway_tracing.log import get_logger

from headway_cli.serve.running import PartEnded

log = get_logger(__name__)

# `up` waits for runs before it stops the worker, so the worker's own drain is short unless the user
# sets it. The worker needs some seconds more to cancel and hand back its runs.
_DRAIN = "HEADWAY_DRAIN_SECONDS"
_DRAIN_SECONDS = 1.0
_HAND_BACK_SECONDS = 7.0
_LAST_OUTPUT_SECONDS = 1.0

# Pauses before a worker is restarted; after so long the first one again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY_SECONDS = 60.0

ShowLine = Callable[[str], None]


def check_runs(process: SupervisedProcess, name: str, where: str) -> None:
    """Raise if a process has ended that must run as long as `up` does."""
    if process.returncode is not None:
        raise PartEnded(f"{name} exited unexpectedly with code {process.returncode}: {where}")


class WorkerProcess:
    """A worker that is kept running, cannot outlive this process, and whose output is shown.

    A worker that `must_run` raises if it fails.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        environment: Mapping[str, str],
        show_line: ShowLine,
        *,
        must_run: bool,
    ) -> None:
        drain = float(environment.get(_DRAIN) or _DRAIN_SECONDS)
        self._name = name
        self._words = words
        self._environment = {**environment, _DRAIN: str(drain)}
        self._show_line = show_line
        self._must_run = must_run
        self._stop_seconds = drain + _HAND_BACK_SECONDS
        self._process: SupervisedProcess
        self._readers: list[asyncio.Task[None]]
        self._keeping: asyncio.Task[None]

    async def start(self) -> None:
        """Start the program, and restart it whenever it ends."""
        await self._launch()
        self._keeping = asyncio.create_task(self._keep_running())

    async def restart(self) -> None:
        """Stop the program in order, and start it again."""
        await self.stop()
        await self.start()

    async def check(self) -> None:
        """Raise if it failed for good; its last output is shown by then."""
        # Cancelled during a restart.
        if self._keeping.done() and not self._keeping.cancelled():
            self._keeping.result()

    async def stop(self) -> None:
        """Stop the restarts and let it drain; show its output meanwhile."""
        await end([self._keeping])
        await self._process.stop(within=self._stop_seconds)
        await self._clean_up()

    async def _launch(self) -> None:
        self._process = process = await SupervisedProcess.start(
            self._words, env=self._environment, cwd=Path.cwd(), stdout=PIPE, stderr=PIPE
        )
        self._readers = [
            asyncio.create_task(_show_lines(stream, self._show_line))
            for stream in (process.stdout, process.stderr)
            if stream is not None
        ]

    async def _keep_running(self) -> None:
        pause = None
        while True:
            began = monotonic()
            try:
                if self._process.returncode is not None:
                    await self._launch()
                code = await self._process.wait()
                how = f"exit code {code}"
                await self._clean_up()
                if self._must_run and code != 0:
                    check_runs(self._process, self._name, "see its output above")
            except EmbeddedError as error:
                how = f"cannot start: {error}"
            pause = next_pause(pause, monotonic() - began)
            log.warning("worker ended; restarting", worker=self._name, how=how, pause=pause)
            await asyncio.sleep(pause)

    async def _clean_up(self) -> None:
        """Show the last output of an ended program, and kill processes that it left."""
        if self._readers:
            # Limited: a process that a job has started may live on and keep the pipe open.
            await asyncio.wait(self._readers, timeout=_LAST_OUTPUT_SECONDS)
            self._readers = []
            # Without any there is no such group, which macOS reports as a permission error.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.process_id, signal.SIGKILL)


async def _show_lines(stream: asyncio.StreamReader, show_line: ShowLine) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit; keep reading, or the worker would block
            show_line("(a very long line of the worker is omitted)")
            continue
        if not line:
            return
        show_line(line.decode(errors="replace").rstrip("\r\n"))


def check_commands(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Check that each worker command names a program."""
    for text in given:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}.", context, parameter) from None
        if not words or shutil.which(words[0]) is None:
            program = words[0] if words else ""
            problem = f"there is no program {program!r} to run: install it, or give its path."
            raise click.BadParameter(problem, context, parameter)
    return given


def next_pause(pause: float | None, ran_for: float) -> float:
    """Return the pause before a program that has ended is restarted."""
    if pause is None or ran_for >= _STEADY_SECONDS:
        return _FIRST_PAUSE
    return min(pause * 2, _LONGEST_PAUSE)
