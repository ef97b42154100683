"""Run `headway` commands in forks of one process that has imported them.

A command takes 0.4 s of processor time to import its modules, and the tests run hundreds. A fork has
them, and is still a process of its own: environment, folder, outputs and exit code.
"""

import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

MOST_SECONDS = 90  # a busy machine is slow
MOST_BYTES = 2**17


def run_command(
    arguments: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> tuple[int, bytes, bytes]:
    """Run a command; return its exit code and what it wrote to its two outputs."""
    request = {"arguments": arguments, "folder": str(folder), "environment": environment}
    answer, answer_end = os.pipe()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        os.fdopen(answer) as code,
    ):
        files = [out.fileno(), err.fileno(), answer_end]
        socket.send_fds(_server(), [json.dumps(request).encode()], files)
        os.close(answer_end)
        ended = int(code.read())
        out.seek(0)
        err.seek(0)
        return ended, out.read(), err.read()


@cache
def _server() -> socket.socket:
    """Start the server, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            env={name: value for name, value in os.environ.items() if "HEADWAY" not in name},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for pytest alone
            pass_fds=[theirs.fileno()],
        )
    return ours


def main() -> None:
    """Serve requests, each in a fork, until the socket is closed."""
    package = importlib.import_module("headway_cli")
    for module in pkgutil.walk_packages(package.__path__, "headway_cli."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, files, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _serve(json.loads(message), *files)
            return
        for file in files:
            os.close(file)


def _serve(request: dict, out: int, err: int, answer: int) -> None:
    """Run the command in one more fork, and tell its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        os.write(answer, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(answer)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.path.insert(0, request["folder"])
    signal.alarm(MOST_SECONDS)
    importlib.import_module("headway_cli.main").main(request["arguments"])


if __name__ == "__main__":
    main()
