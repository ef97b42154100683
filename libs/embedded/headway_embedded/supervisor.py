"""Runs a program, and ends it when the parent process goes away.

A script that needs only the standard library, so that it starts in milliseconds:

    python -I -S supervisor.py CHANNEL PARENT STOP_SIGNAL GRACE UID:GID PROGRAM [ARGUMENT ...]

CHANNEL is a socket to the parent, one message a line. The supervisor sends `started PID` or
`failed REASON`, and at last `exited CODE`; it receives `stop SECONDS` and `kill`. End of file means
that the parent is gone, and so does the end of process PARENT: a fork may keep the socket open.
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


class Child:
    """The supervised program: gets the stop signal once, and is killed after a time limit."""

    def __init__(self, process_id: int, stop_signal: int) -> None:
        self.process_id = process_id
        self.stop_signal = stop_signal
        self.stopping = False

    def stop(self, within: float) -> None:
        """Send the stop signal and set the alarm for the kill."""
        if not self.stopping:
            self.stopping = True
            os.kill(self.process_id, self.stop_signal)
        signal.setitimer(signal.ITIMER_REAL, max(within, 0.001))

    def kill(self) -> None:
        """Kill the program's process group."""
        # On macOS a group whose last member has just ended raises an error.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process_id, signal.SIGKILL)

    def reap(self) -> int | None:
        """Return the exit code, negative for a signal; `None` while the program runs."""
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
        send(channel, f"failed {error}")
        return 127
    close_streams()
    send(channel, f"started {process_id}")
    code = guard(Child(process_id, stop_signal), channel, wake, parent, grace)
    send(channel, f"exited {code}")
    return code if code >= 0 else 128 - code


def guard(child: Child, channel: int, wake: int, parent: int, grace: float) -> int:
    """Wait for commands, for the end of the parent and for the end of the program."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(channel, select.POLLIN)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # too old a kernel, or the parent is gone
            poll.register(os.pidfd_open(parent), select.POLLIN)
    if os.getppid() != parent:
        child.stop(grace)
    while True:
        for source, _ in poll.poll():
            if source == wake:
                signals = os.read(wake, 64)
                if (code := child.reap()) is not None:
                    return code
                if signal.SIGALRM in signals:
                    child.kill()
                if signal.SIGTERM in signals:
                    child.stop(grace)
            elif source == channel and (commands := receive(channel)):
                obey(child, commands)
            else:
                poll.unregister(source)
                child.stop(grace)


def obey(child: Child, commands: bytes) -> None:
    """Carry out the parent's commands, one a line."""
    for command in commands.decode().splitlines():
        match command.split():
            case ["stop", seconds]:
                child.stop(float(seconds))
            case ["kill"]:
                child.kill()


def start(program: list[str], account: str) -> int:
    """Start the program and return its process id; raise `ChildProcessError` if it cannot run."""
    # Both ends close on exec, so end of file without data means that the program runs.
    reader, writer = os.pipe()
    prctl = find_prctl()
    supervisor = os.getpid()
    process_id = os.fork()
    if process_id == 0:
        try:
            become(program, account, prctl, supervisor)
        except OSError as error:
            os.write(writer, f"{error.strerror}: {error.filename or program[0]}".encode())
        finally:
            os._exit(127)
    os.close(writer)
    with open(reader, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        failure = pipe.read().decode()
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
        # After setuid: the kernel clears this flag when credentials change.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(127)
    os.execvp(program[0], program)  # noqa: S606 - no shell is wanted


def find_prctl() -> Callable[..., int] | None:
    """Return Linux's call that lets a process die with its parent; `None` elsewhere."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # noqa: PLC0415 - slow to import, useless elsewhere
    except ImportError:
        return None
    prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    return prctl


def wake_on_signals() -> int:
    """Return a descriptor that yields the numbers of received signals."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in WOKEN_BY:
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return woken


def close_streams() -> None:
    """Release the standard streams and the current folder, which the program uses."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)
    os.chdir("/")


def receive(channel: int) -> bytes:
    """Read from the parent; empty if it is gone."""
    with contextlib.suppress(ConnectionError):
        return os.read(channel, 4096)
    return b""


def send(channel: int, message: str) -> None:
    """Send a line to the parent if it is still there."""
    with contextlib.suppress(OSError):
        os.write(channel, f"{message}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
