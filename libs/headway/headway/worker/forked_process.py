"""The other side of `nursery`: the process that forks, and the children that run bodies.

    python -m headway.worker.forked_process <control socket> <what to load>

The one that forks has one thread and does nothing but fork, reap and tell. A child runs one
body in its main thread, while another listens whether it is to stop; if the worker is gone,
so is the child.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.progress import Level
from msgspec import Struct

from headway import errors
from headway.define.jobs import Job, input_of_body
from headway.errors import ActivationUnavailable
from headway.worker.context import Context, Wanted
from headway.worker.failures import failure_of
from headway.worker.outputs import encode_output
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
    line,
    to_child,
)
from headway.worker.reports import bounded, bounded_progress
from headway.worker.run_log import CapturedLogging, current_reporter

logger = logging.getLogger(__name__)


class _Given(Struct):
    path: list[str]
    places: list[Place]


def main(arguments: list[str]) -> None:
    """Load the jobs, then fork a child for each socket that is sent, until the worker is gone."""
    control = socket.socket(fileno=int(arguments[0]))
    given = msgspec.json.decode(arguments[1], type=_Given)
    sys.path[:] = given.path
    for place in given.places:
        try:
            find(place)
        except Exception:
            logger.exception("cannot load %s of %s", place.name, place.file)
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    control.sendall(b"ready\n")
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_exits(control)
        if control.fileno() in ready and not _fork(control):
            return


def _fork(control: socket.socket) -> bool:
    """Make a child for the next socket; false if there is nobody left to ask for one."""
    asked, sockets, _, _ = socket.recv_fds(control, 1, 1)
    if not asked:
        return False
    [given] = sockets
    if os.fork() == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        os.setsid()
        try:
            Body(socket.socket(fileno=given)).run()
        finally:
            os._exit(0)
    os.close(given)
    return True


def _tell_exits(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        control.sendall(b"%d %d\n" % (pid, os.waitstatus_to_exitcode(status)))


def find(place: Place) -> Callable[..., Any]:
    """A function by the name of its module, or else by its file."""
    module = sys.modules.get(_called(place)) or _load(place)
    found: Any = module
    for step in place.name.split("."):
        found = getattr(found, step)
    function: Callable[..., Any] = found
    return function


def _called(place: Place) -> str:
    """A program's own module must not be run as a program again."""
    return "__headway_main__" if place.module == "__main__" else place.module


def _load(place: Place) -> ModuleType:
    name = _called(place)
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin == place.file:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, place.file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place.file} is no module that can be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Body:
    """One run in this process. It is the reporter and the activator of its context, too."""

    def __init__(self, worker: socket.socket) -> None:
        self._worker = worker
        self._incoming = worker.makefile("rb")
        self._speaking = threading.Lock()
        self._stop: Callable[[], None] = lambda: None
        self._asked = False
        self._over = False
        self._answers: dict[int, tuple[threading.Event, list[Activated]]] = {}

    def run(self) -> None:
        """Run the body that the worker names, and tell how it ended."""
        self._say(Alive(os.getpid()))
        begin = to_child.decode(self._incoming.readline())
        assert isinstance(begin, Begin)  # noqa: S101 - the first word of a worker
        context = Context(begin.ordered, begin.job, activator=self, reporter=self)
        self._stop = context.ask_to_stop
        threading.Thread(target=self._listen, name="worker", daemon=True).start()
        if begin.capture_logging:
            logging.getLogger().addHandler(CapturedLogging())
            current_reporter.set(self)
        try:
            ended: FromChild = self._ended(self._call(begin, context))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the worker hears it
            known = isinstance(error, Exception)
            ended = Raised(failure_of(error if known else RuntimeError(repr(error))))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a body may have closed it
                stream.flush()
        self._over = True
        self._say(ended)

    def progress(self, percent: float | None, message: str | None) -> None:
        """How far the run is."""
        percent, message = bounded_progress(percent, message)
        self._say(ToldProgress(percent=percent, message=message))

    def line(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        """One line of its log."""
        message, fields = bounded(message, fields)
        self._say(ToldLine(level=level, message=message, fields=fields))

    def activate(self, wanted: list[Wanted]) -> Awaitable[None]:
        """Ask the worker to wake dependents; a body without a loop waits here until it has."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._activate(wanted)
            return _Done()
        return loop.run_in_executor(None, self._activate, wanted)

    def _call(self, begin: Begin, context: Context) -> Any:
        function = find(begin.place)
        body_input = input_of_body(function)
        job = Job(
            name=begin.job,
            group=begin.ordered.group,
            function=function,
            takes_input=body_input.taken,
            input_type=body_input.type,
            default_input=body_input.default,
        )
        given = (job.read_input(begin.ordered.input),) if body_input.taken else ()
        if job.is_async:
            return asyncio.run(self._await(function(context, *given)))
        return function(context, *given)

    async def _await(self, body: Awaitable[Any]) -> Any:
        """An async body is stopped as it would be in the worker: it is cancelled."""
        task = asyncio.ensure_future(body)
        loop, ask = asyncio.get_running_loop(), self._stop

        def stop() -> None:
            ask()
            loop.call_soon_threadsafe(task.cancel)

        self._stop = stop
        if self._asked:
            stop()
        return await task

    def _ended(self, output: Any) -> FromChild:
        encoded = encode_output(output)
        return Raised(encoded) if isinstance(encoded, Failure) else Returned(encoded)

    def _listen(self) -> None:
        """Hear what the worker says. Without a worker there is nobody to run for."""
        try:
            for told in self._incoming:
                match to_child.decode(told):
                    case Stop():
                        self._asked = True
                        self._stop()
                    case Activated() as answer:
                        arrived, answers = self._answers.pop(answer.number)
                        answers.append(answer)
                        arrived.set()
        finally:
            if not self._over:
                os.killpg(0, signal.SIGKILL)

    def _activate(self, wanted: list[Wanted]) -> None:
        encoded = [(one.manifest, msgspec.to_builtins(one.input), one.key) for one in wanted]
        arrived, answers = threading.Event(), list[Activated]()
        with self._speaking:
            number = len(self._answers) + 1
            while number in self._answers:
                number += 1
            self._answers[number] = (arrived, answers)
        self._say(ToActivate(number=number, wanted=encoded))
        arrived.wait()
        [answer] = answers
        if answer.error:
            kind = getattr(errors, answer.error, ActivationUnavailable)
            raise kind(answer.message)

    def _say(self, frame: FromChild) -> None:
        with self._speaking:
            self._worker.sendall(line(frame))


class _Done:
    """Something that may be awaited and is over."""

    def __await__(self) -> Any:
        return iter(())


if __name__ == "__main__":
    main(sys.argv[1:])
