"""Run bodies in processes of their own, for work that keeps a core busy.

The fork server is a process that loads the jobs' modules once, when the worker starts, and then
forks a process for each run: quickly, always with the same code, and without state of the run
before. The process talks to the worker over a socket of its own, on which the fork server reports
its exit. It ends with its run, when it is killed, or when the worker is gone.
"""

import asyncio
import contextlib
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_jetstream_kit.tasks import end
from headway_tracing.log import get_logger

from headway.define.jobs import Job
from headway.worker import pipe_frames
from headway.worker.context import Activator, Reporter

log = get_logger(__name__)

PROCESS_DIED = "process_died"
# An activation is one line, and may be large.
_LONGEST_LINE = 64 * 1024**2
_START_SECONDS = 60.0
_EXIT_SECONDS = 1.0


class BodyFailed(Exception):
    """A body in another process failed, with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def function_path(function: Callable[..., Any]) -> pipe_frames.FunctionPath:
    """Describe where another process finds a function; a decorator may be in another file."""
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None) or inspect.unwrap(function).__code__.co_filename
    return pipe_frames.FunctionPath(function.__module__, file, function.__qualname__)


class ForkServer:
    """Forks a process for each run of the jobs with `process=True`."""

    def __init__(self, jobs: list[Job]) -> None:
        self._functions = [function_path(job.function) for job in jobs]
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._fork_lock = asyncio.Lock()

    async def start(self) -> None:
        """Start the process, and wait until it has loaded the jobs' modules."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003 - the socket calls it so
        given = msgspec.json.encode({"path": sys.path, "functions": self._functions}).decode()
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
        ready = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_START_SECONDS):
                ready = await asyncio.get_running_loop().sock_recv(ours, 1)
        if not ready:
            await self.stop()
            raise RuntimeError("fork server for process=True jobs did not start: see its output")

    async def stop(self) -> None:
        """Stop it; processes that still run end by themselves when their socket closes."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._process = self._control = None

    async def fork(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Fork a process and open the connection to it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await self._request_fork(theirs.fileno())
        except BaseException:
            ours.close()
            raise
        return await asyncio.open_unix_connection(sock=ours, limit=_LONGEST_LINE)

    async def _request_fork(self, connection: int) -> None:
        """Send one request at a time, so that only one caller restarts the server."""
        async with self._fork_lock:
            if self._process is None or self._process.returncode is not None:
                await self._restart()
            try:
                self._send(connection)
            except ConnectionError:  # it is just exiting
                await self._restart()
                self._send(connection)

    def _send(self, connection: int) -> None:
        assert self._control is not None  # noqa: S101 - it was started
        socket.send_fds(self._control, [b"r"], [connection])

    async def _restart(self) -> None:
        log.warning("fork server exited; restarting")
        await self.stop()
        await self.start()


@dataclass(eq=False)
class BodyProcess:
    """The process of one run, seen from the worker."""

    fork_server: ForkServer
    job: Job
    ordered: OrderedRun
    reporter: Reporter
    activator: Activator
    _writer: asyncio.StreamWriter | None = None
    _pid: int | None = None
    _stop_requested: bool = False
    _kill_requested: bool = False
    _ended: bool = False
    _activating: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> msgspec.Raw:
        """Run the body; raise `BodyFailed` if it does not return."""
        reader, self._writer = await self.fork_server.fork()
        try:
            begin = pipe_frames.Begin(
                function=function_path(self.job.function),
                job=self.job.name,
                ordered=self.ordered,
                capture_logging=self.job.capture_logging,
            )
            self._send(begin)
            if self._stop_requested:
                self._send(pipe_frames.Stop())
            return await self._read_until_end(reader)
        finally:
            self.kill()
            await end(self._activating)
            self._writer.close()

    def ask_to_stop(self) -> None:
        """Ask the body to end early."""
        self._stop_requested = True
        if self._writer is not None and not self._writer.is_closing():
            self._send(pipe_frames.Stop())

    def kill(self) -> None:
        """Kill the process and all that it started; if it is still starting, then soon."""
        self._kill_requested = True
        if self._pid is None or self._ended:
            return
        self._ended = True
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # it has already exited

    def _send(self, frame: pipe_frames.ToChild) -> None:
        assert self._writer is not None  # noqa: S101 - the process has started
        self._writer.write(pipe_frames.encode_frame(frame))

    async def _read_until_end(self, reader: asyncio.StreamReader) -> msgspec.Raw:
        while True:
            try:
                line = await reader.readline()
            except (OSError, ValueError) as error:
                log.warning("process of a run is unreadable", run=self.ordered.run, error=error)
                line = b""
            if not line:
                raise BodyFailed(_death_failure(None))
            try:
                frame = pipe_frames.from_child.decode(line)
            except msgspec.DecodeError:
                # A process that was killed leaves half a line, and the line of its exit follows.
                self.kill()
                continue
            match frame:
                case pipe_frames.Returned(output):
                    self._ended = True
                    return output
                case pipe_frames.Raised(failure):
                    self._ended = True
                    raise BodyFailed(failure)
                case pipe_frames.Exited(code):
                    raise BodyFailed(_death_failure(code))
                case _:
                    self._handle(frame)

    def _handle(self, frame: pipe_frames.FromChild) -> None:
        match frame:
            case pipe_frames.Alive(pid):
                self._pid = pid
                if self._kill_requested:
                    self.kill()
            case pipe_frames.ProgressFrame(percent=percent, message=message):
                self.reporter.progress(percent, message)
            case pipe_frames.LogFrame(level=level, message=message, fields=fields):
                self.reporter.line(level, message, fields)
            case pipe_frames.ActivateFrame():
                task = asyncio.create_task(self._activate(frame))
                self._activating.add(task)
                task.add_done_callback(self._activating.discard)

    async def _activate(self, frame: pipe_frames.ActivateFrame) -> None:
        """Activate for the body, and send it the result."""
        reply = pipe_frames.ActivateReply(number=frame.number)
        try:
            await self.activator.activate(frame.requests)
        except Exception as error:  # noqa: BLE001 - the body receives it
            reply = msgspec.structs.replace(reply, error=type(error).__name__, message=str(error))
        self._send(reply)


def _death_failure(code: int | None) -> Failure:
    if code is None:
        how = "its exit code is unknown"
    elif code >= 0:
        how = f"it exited with code {code}"
    else:
        how = f"it was ended by signal {-code} ({signal.Signals(-code).name})"
    return Failure(kind=PROCESS_DIED, message=f"the process of the run ended early: {how}")
