"""Starts programs that cannot outlive this process."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL
from typing import Self

from headway_embedded.accounts import Account
from headway_embedded.data_folder import EmbeddedError

SUPERVISOR = Path(__file__).with_name("supervisor.py")

STOP_SECONDS = 30.0
# Time for an orderly end once this process is gone.
GRACE_SECONDS = 4.0
LINE_BYTES = 1 << 20


class SupervisedProcess:
    """A program under a supervisor, which ends it when this process ends for any reason."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        process_id: int,
    ) -> None:
        self.process_id = process_id
        self.supervisor_id = process.pid
        self.stdout = process.stdout
        self.stderr = process.stderr
        self._process = process
        self._reader = reader
        self._writer = writer
        self._exit = asyncio.create_task(self._await_exit())

    @classmethod
    async def start(
        cls,
        argv: Sequence[str | Path],
        *,
        stop_signal: int = signal.SIGTERM,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: Account | None = None,
        stdin: int = DEVNULL,
        stdout: int | None = DEVNULL,
        stderr: int | None = DEVNULL,
        held: Sequence[int] = (),
    ) -> Self:
        """Start the program; `held` are file descriptors that it inherits."""
        account = f"{user.uid}:{user.gid}" if user else "-"
        terms = (os.getpid(), int(stop_signal), GRACE_SECONDS)
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", SUPERVISOR),
                    *(str(theirs.fileno()), *map(str, terms), account, *argv),
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    limit=LINE_BYTES,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), *held),
                )
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        try:
            word, _, rest = (await reader.readline()).decode().strip().partition(" ")
            if word == "started":
                return cls(process, reader, writer, int(rest))
            await process.wait()
            raise EmbeddedError(
                f"cannot start program {argv[0]} ({rest or 'its supervisor ended at once'}); "
                "check that it exists and is executable"
            )
        except BaseException:
            writer.close()
            raise

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; `None` while the program runs."""
        return self._exit.result() if self._exit.done() else None

    async def wait(self) -> int:
        """Wait for the program's end and return its exit code, negative for a signal."""
        return await asyncio.shield(self._exit)

    async def stop(self, within: float = STOP_SECONDS) -> int:
        """Send the orderly signal, kill after `within` seconds, and return the exit code."""
        self._send(f"stop {within}")
        return await self.wait()

    def kill(self) -> None:
        """Send SIGKILL; `wait` returns when the program has ended."""
        self._send("kill")

    def _send(self, command: str) -> None:
        """Send a command to the supervisor, which may already be gone."""
        if not self._exit.done():
            self._writer.write(f"{command}\n".encode())

    async def _await_exit(self) -> int:
        """Wait for the supervisor's end and return the program's exit code."""
        # If the supervisor was killed, so was the program.
        code = -int(signal.SIGKILL)
        try:
            while line := await self._reader.readline():
                code = int(line.decode().removeprefix("exited "))
        except ConnectionError:
            pass
        await self._process.wait()
        self._writer.close()
        return code
