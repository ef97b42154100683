"""Runs one program, and ends it when the process that asked for it goes away.

A script of its own with nothing but the standard library, so that it is up in milliseconds:

    python -I -S supervisor.py CHANNEL PARENT STOP_SIGNAL GRACE UID:GID PROGRAM [ARGUMENT ...]

CHANNEL is a socket to the parent, one message a line. It tells `started PID` or `failed REASON`,
and at last `exited CODE`; it is told `stop SECONDS` and `kill`. Its end of file means that the
parent is gone, and so does the end of process PARENT: a fork of the parent may keep the socket.
The program has the supervisor's standard streams, environment and other open files.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

WOKEN_BY = (signal.SIGCHLD, signal.SIGALRM, signal.SIGTERM)
PR_SET_PDEATHSIG = 1


class Ward:
    """The program under guard: asked to stop once, and killed when its time is up."""

    def __init__(self, process_id: int, stop_signal: int) -> None:
        self.process_id = process_id
        self.stop_signal = stop_signal
        self.stopping = False

    def stop(self, within: float) -> None:
        """Ask for an orderly end, and set the alarm that ends the patience."""
        if not self.stopping:
            self.stopping = True
            os.kill(self.process_id, self.stop_signal)
        signal.setitimer(signal.ITIMER_REAL, max(within, 0.001))

    def kill(self) -> None:
        """End the program, and what it started in its own process group, at once."""
        # A group whose last member has just ended answers with an error on macOS.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process_id, signal.SIGKILL)

    def reap(self) -> int | None:
        """The exit code if the program has ended, negative for a signal."""
        ended, status = os.waitpid(self.process_id, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None


def main(arguments: list[str]) -> int:
    """Run the program to its end and return its exit code as a shell would."""
    channel, parent, stop_signal = (int(number) for number in arguments[:3])
    grace, account, program = float(arguments[3]), arguments[4], arguments[5:]
    os.set_inheritable(channel, False)  # noqa: FBT003 - it has no name
    wake = wake_on_signals()
    try:
        process_id = start(program, account)
    except ChildProcessError as error:
        tell(channel, f"failed {error}")
        return 127
    let_go_of_streams()
    tell(channel, f"started {process_id}")
    code = guard(Ward(process_id, stop_signal), channel, wake, parent, grace)
    tell(channel, f"exited {code}")
    return code if code >= 0 else 128 - code


def guard(ward: Ward, channel: int, wake: int, parent: int, grace: float) -> int:
    """Wait for orders, for the end of the parent and for the end of the program."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(channel, select.POLLIN)
    watched_parent = watch_process(parent)
    if watched_parent is not None:
        poll.register(watched_parent, select.POLLIN)
    if os.getppid() != parent:
        ward.stop(grace)
    while True:
        for source, _ in poll.poll():
            if source == wake:
                signals = os.read(wake, 64)
                if (code := ward.reap()) is not None:
                    return code
                if signal.SIGALRM in signals:
                    ward.kill()
                if signal.SIGTERM in signals:
                    ward.stop(grace)
            elif source == channel and (orders := receive(channel)):
                obey(ward, orders)
            else:
                poll.unregister(source)
                ward.stop(grace)


def obey(ward: Ward, orders: bytes) -> None:
    """Do what the parent wrote, line by line."""
    for order in orders.decode().splitlines():
        match order.split():
            case ["stop", seconds]:
                ward.stop(float(seconds))
            case ["kill"]:
                ward.kill()


def start(program: list[str], account: str) -> int:
    """Start the program and return its process id; ChildProcessError tells why it cannot run."""
    # Both ends close on exec, so an end of file without a word means that the program runs.
    heard, told = os.pipe()
    prctl = find_prctl()
    supervisor = os.getpid()
    process_id = os.fork()
    if process_id == 0:
        try:
            become(program, account, prctl, supervisor)
        except OSError as error:
            os.write(told, f"{error.strerror}: {error.filename or program[0]}".encode())
        finally:
            os._exit(127)
    os.close(told)
    with open(heard, "rb") as words:  # noqa: PTH123 - a descriptor, not a path
        failure = words.read().decode()
    if failure:
        os.waitpid(process_id, 0)
        raise ChildProcessError(failure)
    return process_id


def become(
    program: list[str], account: str, prctl: Callable[..., int] | None, supervisor: int
) -> NoReturn:
    """Turn this fork into the program."""
    # A session of its own, so that the terminal's Ctrl-C reaches the parent alone.
    os.setsid()
    for number in (*WOKEN_BY, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if account != "-":
        uid, _, gid = account.partition(":")
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if prctl is not None:
        # After setuid, for the kernel forgets this wish when credentials change.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(127)
    os.execvp(program[0], program)  # noqa: S606 - no shell is wanted


def find_prctl() -> Callable[..., int] | None:
    """Linux's call by which a process asks to die with its parent, where there is one."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # noqa: PLC0415 - slow to import, and of no use elsewhere
    except ImportError:
        return None
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    return prctl


def watch_process(process_id: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where the system has them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(process_id)
    return None


def wake_on_signals() -> int:
    """A descriptor that yields the numbers of the signals that arrived."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in WOKEN_BY:
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return woken


def let_go_of_streams() -> None:
    """Leave the standard streams and the current folder to the program alone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    os.chdir("/")


def receive(channel: int) -> bytes:
    """What the parent wrote; nothing when it is gone."""
    with contextlib.suppress(ConnectionError):
        return os.read(channel, 4096)
    return b""


def tell(channel: int, message: str) -> None:
    """Write one line to the parent, if there is still one."""
    with contextlib.suppress(OSError):
        os.write(channel, f"{message}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
