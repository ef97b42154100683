"""Bodies in processes of their own, for work that keeps a core busy.

A nursery is a process that has loaded the jobs' modules once, when the worker started, and
from then on forks a child for each run: quickly, always of the same code, and with nothing
left over from the run before. A child talks to the worker over a socket of its own; it ends
with its run, when it is killed, or when the worker is gone.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_jetstream_kit.tasks import end

from headway.context import Activator, Wanted
from headway.jobs import Job
from headway.run_log import Reporter
from headway.worker.frames import (
    Activated,
    Alive,
    Begin,
    FromChild,
    Place,
    Raised,
    Returned,
    Stop,
    ToActivate,
    ToldLine,
    ToldProgress,
    from_child,
    line,
)

logger = logging.getLogger(__name__)

PROCESS_DIED = "process_died"
# Activations travel in one line, and may be large.
_LONGEST_LINE = 64 * 1024**2
_START_SECONDS = 60.0
_EXIT_SECONDS = 1.0


class BodyFailed(Exception):
    """A body in another process failed; its failure is told in its own words."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class NurseryFailed(Exception):
    """The process that makes the processes of bodies could not be started."""


def place_of(function: Callable[..., Any]) -> Place:
    """Where a function is found by another process."""
    return Place(function.__module__, function.__code__.co_filename, function.__qualname__)


class Nursery:
    """Makes a process for each run of the jobs that want one."""

    def __init__(self, jobs: list[Job]) -> None:
        self._places = [place_of(job.function) for job in jobs]
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._exits: dict[int, asyncio.Future[int]] = {}

    async def start(self) -> None:
        """Load the jobs' modules in a process of its own, and wait until it has."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the socket calls it so
        given = msgspec.json.encode({"path": sys.path, "places": self._places}).decode()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headway.worker.child",
                str(theirs.fileno()),
                given,
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C is for the worker, which then lets its runs finish.
                start_new_session=True,
            )
        self._control = ours
        ready = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(ours, ready))
        try:
            async with asyncio.timeout(_START_SECONDS):
                await ready
        except (TimeoutError, NurseryFailed) as error:
            await self.stop()
            raise NurseryFailed(
                "the process for jobs with process=True did not start: its words are above"
            ) from error

    async def stop(self) -> None:
        """End it; children that still run end by themselves, for we listen to them no more."""
        if self._listening is not None:
            await end([self._listening])
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._process = self._control = self._listening = None

    async def child(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new process, and the way to talk to it."""
        if self._process is None or self._process.returncode is not None:
            logger.warning("the process that makes processes has ended: starting it again")
            await self.stop()
            await self.start()
        assert self._control is not None  # noqa: S101 - it was just started
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"r"], [theirs.fileno()])
        return await asyncio.open_unix_connection(sock=ours, limit=_LONGEST_LINE)

    async def exit_of(self, pid: int) -> str:
        """How a process ended, in words."""
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                code = await self._exit(pid)
        except TimeoutError:
            return "it ended without a word"
        finally:
            self._exits.pop(pid, None)
        if code >= 0:
            return f"it exited with code {code}"
        return f"it was ended by signal {-code} ({signal.Signals(-code).name})"

    def _exit(self, pid: int) -> "asyncio.Future[int]":
        return self._exits.setdefault(pid, asyncio.get_running_loop().create_future())

    async def _listen(self, control: socket.socket, ready: "asyncio.Future[None]") -> None:
        """Hear that it is ready, and then how each of its children ended."""
        loop = asyncio.get_running_loop()
        rest = b""
        while data := await loop.sock_recv(control, 4096):
            *lines, rest = (rest + data).split(b"\n")
            for told in lines:
                if told == b"ready":
                    ready.set_result(None)
                else:
                    pid, code = map(int, told.split())
                    self._note_exit(pid, code)
        if not ready.done():
            ready.set_exception(NurseryFailed("it ended while it started"))

    def _note_exit(self, pid: int, code: int) -> None:
        if len(self._exits) > 10_000:  # those that nobody asked about
            self._exits.clear()
        exit_code = self._exit(pid)
        if not exit_code.done():
            exit_code.set_result(code)


class Child:
    """The process of one run."""

    def __init__(
        self,
        nursery: Nursery,
        job: Job,
        ordered: OrderedRun,
        reporter: Reporter,
        activator: Activator,
    ) -> None:
        self._nursery = nursery
        self._job = job
        self._ordered = ordered
        self._reporter = reporter
        self._activator = activator
        self._writer: asyncio.StreamWriter | None = None
        self._pid: int | None = None
        self._asked = False
        self._ended = False
        self._activating: set[asyncio.Task[None]] = set()

    async def run(self) -> msgspec.Raw:
        """Run the body; raises `BodyFailed` with whatever kept it from returning."""
        reader, self._writer = await self._nursery.child()
        try:
            self._writer.write(line(self._begin()))
            if self._asked:
                self._writer.write(line(Stop()))
            return await self._until_it_ends(reader)
        finally:
            self.kill()
            await end(self._activating)
            self._writer.close()

    def ask_to_stop(self) -> None:
        """Tell the body that it should end early."""
        self._asked = True
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line(Stop()))

    def kill(self) -> None:
        """End the process, with all that it has started."""
        if self._pid is None or self._ended:
            return
        self._ended = True
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # it has ended by itself

    def _begin(self) -> Begin:
        return Begin(
            place=place_of(self._job.function),
            job=self._job.name,
            ordered=self._ordered,
            capture_logging=self._job.capture_logging,
        )

    async def _until_it_ends(self, reader: asyncio.StreamReader) -> msgspec.Raw:
        while True:
            try:
                told = await reader.readline()
                frame = from_child.decode(told) if told.endswith(b"\n") else None
            except (OSError, ValueError) as error:
                logger.warning("run %s: its process cannot be heard: %s", self._ordered.run, error)
                frame = None
            match frame:
                case None:
                    raise BodyFailed(await self._death())
                case Returned(output):
                    self._ended = True
                    return output
                case Raised(failure):
                    self._ended = True
                    raise BodyFailed(failure)
                case _:
                    self._hear(frame)

    def _hear(self, frame: FromChild) -> None:
        match frame:
            case Alive(pid):
                self._pid = pid
            case ToldProgress(percent=percent, message=message):
                self._reporter.progress(percent, message)
            case ToldLine(level=level, message=message, fields=fields):
                self._reporter.line(level, message, fields)
            case ToActivate():
                task = asyncio.create_task(self._activate(frame))
                self._activating.add(task)
                task.add_done_callback(self._activating.discard)

    async def _activate(self, asked: ToActivate) -> None:
        """Activate for the body, and tell it how that went."""
        assert self._writer is not None  # noqa: S101 - it spoke to us
        try:
            await self._activator.activate([Wanted(*one) for one in asked.wanted])
            answer = Activated(number=asked.number)
        except Exception as error:  # noqa: BLE001 - the body hears it
            answer = Activated(number=asked.number, error=type(error).__name__, message=str(error))
        self._writer.write(line(answer))

    async def _death(self) -> Failure:
        how = "it ended without a word"
        if self._pid is not None:
            how = await self._nursery.exit_of(self._pid)
        return Failure(
            kind=PROCESS_DIED, message=f"the process of the run is gone before its end: {how}"
        )
