"""Workers in other languages beside that of `up`: kept running, and stopped with it.

`up` does not know what such a program is; it may well end because of a mistake that somebody is
about to mend. So it is started again, with a growing pause between one that ends at once and the
next try, and its end is never the end of `up`.
"""

import asyncio
import logging
import shlex
import shutil
from collections.abc import Mapping

import click
from headway_clock import monotonic
from headway_embedded import EmbeddedError
from headway_jetstream_kit.tasks import end
from msgspec import Struct

from headway_cli.up.worker_process import ShowLine, WorkerProcess

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A program that has run for so long was well: its end is the first one again.
_STEADY_SECONDS = 60.0
# The app's own worker has this name; two processes never share one.
_NAME = "HEADWAY_WORKER_NAME"


class WorkerCommand(Struct, frozen=True):
    """A program to run, as it was given and in words."""

    text: str
    words: list[str]


def read_commands(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> list[WorkerCommand]:
    """The commands in words, once it is clear that each names a program."""
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
    """How long to wait before a program that has ended is started again."""
    if pause is None or ran_for >= _STEADY_SECONDS:
        return _FIRST_PAUSE
    return min(pause * 2, _LONGEST_PAUSE)


class OtherWorker:
    """One such program, kept running until it is stopped."""

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
    ) -> "OtherWorker":
        """Start it, and from then on again and again."""
        made = cls(command, environment, show_line)
        await made._start()
        made._keeping = asyncio.create_task(made._keep_running())
        return made

    def check(self) -> None:
        """Raise if nobody keeps it running any more; that it has ended is no fault."""
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()

    async def stop(self) -> None:
        """Start it no more, and let it drain."""
        if self._keeping is not None:
            await end([self._keeping])
        if self._process is not None:
            await self._process.stop()
            self._process.end_what_it_started()
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
            how = await self._how_it_ended()
            pause = next_pause(pause, monotonic() - began)
            logger.warning(
                "worker command '%s' %s; it is started again in %g s",
                *(self._command.text, how, pause),
            )
            await asyncio.sleep(pause)

    async def _how_it_ended(self) -> str:
        """Run it, unless it runs, until it ends."""
        try:
            process = self._process or await self._start()
        except EmbeddedError as error:
            return f"does not start: {error}"
        code = await process.wait()
        process.end_what_it_started()
        self._process = None
        return f"ended by itself with exit code {code}"
