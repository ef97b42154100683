"""Worker commands of `up`: workers in other languages, restarted when they end.

A program may end because of a mistake that its author is about to fix. So it is restarted, with a
growing pause if it ends at once, and its end never ends `up`.
"""

import asyncio
import shlex
import shutil
from collections.abc import Mapping

import click
from headway_clock import monotonic
from headway_embedded import EmbeddedError
from headway_jetstream_kit.tasks import end
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_cli.up.processes import ShowLine, WorkerProcess

log = get_logger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# After so long the pause starts again from the first.
_STEADY_SECONDS = 60.0
# The app's own worker has this name; two workers must not share it.
_NAME = "HEADWAY_WORKER_NAME"


class WorkerCommand(Struct, frozen=True):
    """A program to run: the text that was given, and its words."""

    text: str
    words: list[str]


def read_commands(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> list[WorkerCommand]:
    """Split the commands into words, and check that each names a program."""
    commands = []
    for text in given:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise click.BadParameter(f"{text!r}: {error}.", context, parameter) from None
        if not words or shutil.which(words[0]) is None:
            program = words[0] if words else ""
            raise click.BadParameter(
                f"there is no program {program!r} to run: install it, or give its path.",
                context,
                parameter,
            )
        commands.append(WorkerCommand(text, words))
    return commands


def next_pause(pause: float | None, ran_for: float) -> float:
    """Return the pause before a program that has ended is restarted."""
    if pause is None or ran_for >= _STEADY_SECONDS:
        return _FIRST_PAUSE
    return min(pause * 2, _LONGEST_PAUSE)


class CommandWorker:
    """One worker command, kept running until it is stopped."""

    def __init__(
        self, command: WorkerCommand, environment: Mapping[str, str], show_line: ShowLine
    ) -> None:
        self._command = command
        self._environment = {name: value for name, value in environment.items() if name != _NAME}
        self._show_line = show_line
        self._process: WorkerProcess | None = None
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, command: WorkerCommand, *, environment: Mapping[str, str], show_line: ShowLine
    ) -> "CommandWorker":
        """Start it, and restart it whenever it ends."""
        made = cls(command, environment, show_line)
        await made._start()
        made._keeping = asyncio.create_task(made._keep_running())
        return made

    def check(self) -> None:
        """Raise if the restarts failed; that the program has ended is not an error."""
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()

    async def stop(self) -> None:
        """Stop the restarts, and let it drain."""
        if self._keeping is not None:
            await end([self._keeping])
        if self._process is not None:
            await self._process.stop()
            self._process.kill_descendants()
            self._process = None

    async def _start(self) -> WorkerProcess:
        self._process = await WorkerProcess.start(
            self._command.text,
            self._command.words,
            environment=self._environment,
            show_line=self._show_line,
        )
        return self._process

    async def _keep_running(self) -> None:
        pause = None
        while True:
            began = monotonic()
            how = await self._run_until_end()
            pause = next_pause(pause, monotonic() - began)
            log.warning(
                "worker command ended; restarting", command=self._command.text, how=how, pause=pause
            )
            await asyncio.sleep(pause)

    async def _run_until_end(self) -> str:
        """Run it until it ends; returns how it ended."""
        try:
            process = self._process or await self._start()
        except EmbeddedError as error:
            return f"cannot start: {error}"
        code = await process.wait()
        process.kill_descendants()
        self._process = None
        return f"exit code {code}"
