"""Bodies in processes of their own, for work that keeps a core busy.

A nursery is a process that has loaded the jobs' modules once, when the worker started, and
from then on forks a child for each run: quickly, always of the same code, and with nothing
left over from the run before. A child talks to the worker over a socket of its own; it ends
with its run, when it is killed, or when the worker is gone.
"""

import asyncio
import inspect
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

from headway.define.jobs import Job
from headway.worker.context import Activator, Wanted
from headway.worker.exit_codes import Exits
from headway.worker.pipe_frames import (
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
from headway.worker.run_log import Reporter

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
    """Where a function is found by another process; a decorator may be of another file."""
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None) or inspect.unwrap(function).__code__.co_filename
    return Place(function.__module__, file, function.__qualname__)


class Nursery:
    """Makes a process for each run of the jobs that want one."""

    def __init__(self, jobs: list[Job]) -> None:
        self._places = [place_of(job.function) for job in jobs]
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._listening: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()
        self.exits = Exits()

    async def start(self) -> None:
        """Load the jobs' modules in a process of its own, and wait until it has."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the socket calls it so
        given = msgspec.json.encode({"path": sys.path, "places": self._places}).decode()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headway.worker.forked_process",
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
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._ask_for_child(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        return await asyncio.open_unix_connection(sock=ours, limit=_LONGEST_LINE)

    async def _ask_for_child(self, line_to_it: int) -> None:
        """One at a time: of several that find it gone, one starts it again."""
        async with self._asking:
            if self._process is None or self._process.returncode is not None:
                await self._start_again()
            try:
                self._send(line_to_it)
            except ConnectionError:  # it ends right now
                await self._start_again()
                self._send(line_to_it)

    def _send(self, line_to_it: int) -> None:
        assert self._control is not None  # noqa: S101 - it was started
        socket.send_fds(self._control, [b"r"], [line_to_it])

    async def _start_again(self) -> None:
        logger.warning("the process that makes processes has ended: starting it again")
        await self.stop()
        self.exits.forget_all()
        await self.start()

    async def exit_of(self, pid: int) -> str:
        """How a process ended, in words."""
        exited = self.exits.of(pid)
        await asyncio.wait({exited}, timeout=_EXIT_SECONDS)
        if not exited.done():
            return "it ended without a word"
        code = exited.result()
        if code >= 0:
            return f"it exited with code {code}"
        return f"it was ended by signal {-code} ({signal.Signals(-code).name})"

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
                    self.exits.note(pid, code)
        if not ready.done():
            ready.set_exception(NurseryFailed("it ended while it started"))


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
        self._doomed = False
        self._ended = False
        self._watching: asyncio.Task[None] | None = None
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
            await end([*self._activating, *([self._watching] if self._watching else [])])
            self._writer.close()
            if self._pid is not None:
                self._nursery.exits.forget(self._pid)

    def ask_to_stop(self) -> None:
        """Tell the body that it should end early."""
        self._asked = True
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(line(Stop()))

    def kill(self) -> None:
        """End the process, with all that it has started; if it is just beginning, then soon."""
        self._doomed = True
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
                self._watching = asyncio.create_task(self._hang_up_once_gone(pid))
                if self._doomed:
                    self.kill()
            case ToldProgress(percent=percent, message=message):
                self._reporter.progress(percent, message)
            case ToldLine(level=level, message=message, fields=fields):
                self._reporter.line(level, message, fields)
            case ToActivate():
                task = asyncio.create_task(self._activate(frame))
                self._activating.add(task)
                task.add_done_callback(self._activating.discard)

    async def _hang_up_once_gone(self, pid: int) -> None:
        """A process that it has forked may hold the line open after its end."""
        await asyncio.wait({self._nursery.exits.of(pid)})
        await asyncio.sleep(_EXIT_SECONDS)  # its last words may be on their way
        if self._writer is not None:
            self._writer.transport.abort()

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
