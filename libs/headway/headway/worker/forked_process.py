"""The processes behind `fork_server`: the server that forks, and its children that run bodies.

    python -m headway.worker.forked_process <control socket> <startup as JSON>

The server has one thread and only forks, reaps and reports exit codes. A child runs one body in its
main thread, while another thread reads messages of the worker. Without a worker the child exits.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import logging
import operator
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.worker_protocol import Level
from headway_tracing.log import get_logger
from msgspec import Struct

from headway import errors
from headway.define.jobs import Job, input_of_body
from headway.errors import ActivationUnavailable
from headway.worker import pipe_frames
from headway.worker.activations import PendingActivation
from headway.worker.context import ActivationRequest, CapturedLogging, Context, current_reporter
from headway.worker.outcomes import encode_output, failure_of
from headway.worker.reports import bound_line, bound_progress

log = get_logger(__name__)


class _Startup(Struct):
    path: list[str]
    functions: list[pipe_frames.FunctionPath]


def main(arguments: list[str]) -> None:
    """Load the jobs, then fork a child for each socket received, until the worker is gone."""
    control = socket.socket(fileno=int(arguments[0]))
    startup = msgspec.json.decode(arguments[1], type=_Startup)
    sys.path[:] = startup.path
    for function in startup.functions:
        try:
            load_function(function)
        except Exception:
            log.exception("cannot load function", name=function.name, file=function.file)
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    control.sendall(b"r")
    connections: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_exits(connections)
        if control.fileno() in ready and not _fork(control, connections):
            return


def _fork(control: socket.socket, connections: dict[int, socket.socket]) -> bool:
    """Fork a child for the next socket; return false if the worker is gone."""
    request, sockets, _, _ = socket.recv_fds(control, 1, 1)
    if not request:
        return False
    connection = socket.socket(fileno=sockets[0])
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (control, *connections.values()):
            other.close()
        os.setsid()
        try:
            Body(connection).run()
        finally:
            os._exit(0)
    connections[pid] = connection
    return True


def _report_exits(connections: dict[int, socket.socket]) -> None:
    """Send the exit code of each process that ended to its run, and end the connection."""
    with contextlib.suppress(ChildProcessError):
        while (exited := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = exited
            frame = pipe_frames.encode_frame(pipe_frames.Exited(os.waitstatus_to_exitcode(status)))
            with connections.pop(pid) as connection:
                # The run may have ended, or its worker may not read.
                with contextlib.suppress(OSError):
                    connection.send(b"\n" + frame, socket.MSG_DONTWAIT)
                with contextlib.suppress(OSError):
                    # A grandchild may hold the connection open.
                    connection.shutdown(socket.SHUT_RDWR)


def load_function(path: pipe_frames.FunctionPath) -> Callable[..., Any]:
    """Load a function by the name of its module, or else by its file."""
    # The main module must not run as a program again.
    name = "__headway_main__" if path.module == "__main__" else path.module
    module = sys.modules.get(name) or _load_module(name, path.file)
    function: Callable[..., Any] = operator.attrgetter(path.name)(module)
    return function


def _load_module(name: str, file: str) -> ModuleType:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin == file:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Body:
    """One run in this process. It is also the reporter and the activator of its context."""

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._incoming = worker.makefile("rb")
        self._lock = threading.Lock()
        self._stop: Callable[[], None] = lambda: None
        self._stop_requested = False
        self._ended = False
        self._numbers = itertools.count(1)
        self._replies: dict[int, Future[pipe_frames.ActivateReply]] = {}

    def run(self) -> None:
        """Run the body that the worker names, and send its result."""
        self._send(pipe_frames.Alive(os.getpid()))
        begin = pipe_frames.to_child.decode(self._incoming.readline())
        assert isinstance(begin, pipe_frames.Begin)  # noqa: S101 - the first frame of a worker
        context = Context(begin.ordered, begin.job, self, self)
        self._stop = context.ask_to_stop
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        if begin.capture_logging:
            logging.getLogger().addHandler(CapturedLogging())
            current_reporter.set(self)
        try:
            output = encode_output(self._call(begin, context))
            result: pipe_frames.FromChild = (
                pipe_frames.Raised(output)
                if isinstance(output, Failure)
                else pipe_frames.Returned(output)
            )
        except BaseException as error:  # noqa: BLE001 - the worker receives it, whatever it is
            known = isinstance(error, Exception)
            result = pipe_frames.Raised(failure_of(error if known else RuntimeError(repr(error))))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a body may have closed it
                stream.flush()
        self._ended = True
        self._send(result)

    def progress(self, percent: float | None, message: str | None) -> None:
        """Send how far the run is."""
        percent, message = bound_progress(percent, message)
        self._send(pipe_frames.ProgressFrame(percent=percent, message=message))

    def line(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        """Send one log line."""
        message, fields = bound_line(message, fields)
        self._send(pipe_frames.LogFrame(level=level, message=message, fields=fields))

    def activate(self, requests: list[ActivationRequest]) -> Awaitable[None]:
        """Ask the worker to activate; a body without an event loop waits until it has."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._activate(requests)
            return PendingActivation()
        return loop.run_in_executor(None, self._activate, requests)

    def _call(self, begin: pipe_frames.Begin, context: Context) -> Any:
        function = load_function(begin.function)
        group, body_input = begin.ordered.group, input_of_body(function)
        job = Job(name=begin.job, group=group, function=function, **body_input)
        given = (job.read_input(begin.ordered.input),) if job.takes_input else ()
        if job.is_async:
            return asyncio.run(self._await(function(context, *given)))
        return function(context, *given)

    async def _await(self, body: Awaitable[Any]) -> Any:
        """Await an async body, and cancel it if the worker asks to stop."""
        task = asyncio.ensure_future(body)
        loop, set_cancelled = asyncio.get_running_loop(), self._stop

        def stop() -> None:
            set_cancelled()
            loop.call_soon_threadsafe(task.cancel)

        self._stop = stop
        if self._stop_requested:
            stop()
        return await task

    def _listen(self) -> None:
        """Read frames of the worker; kill this process group when the worker is gone."""
        try:
            for line in self._incoming:
                match pipe_frames.to_child.decode(line):
                    case pipe_frames.Stop():
                        self._stop_requested = True
                        self._stop()
                    case pipe_frames.ActivateReply() as reply:
                        self._replies.pop(reply.number).set_result(reply)
        finally:
            if not self._ended:
                os.killpg(0, signal.SIGKILL)

    def _activate(self, requests: list[ActivationRequest]) -> None:
        number, replied = next(self._numbers), Future[pipe_frames.ActivateReply]()
        self._replies[number] = replied
        self._send(pipe_frames.ActivateFrame(number=number, requests=requests))
        reply = replied.result()
        if reply.error:
            kind = getattr(errors, reply.error, ActivationUnavailable)
            raise kind(reply.message)

    def _send(self, frame: pipe_frames.FromChild) -> None:
        with self._lock:
            self._worker.sendall(pipe_frames.encode_frame(frame))


if __name__ == "__main__":
    main(sys.argv[1:])
