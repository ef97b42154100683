"""A command in a real terminal, with a reader and a typist."""

import asyncio
import fcntl
import functools
import os
import pty
import re
import struct
import sys
import termios
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")


class Terminal:
    """One program and its terminal. Made by `open_terminal`."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._read = bytearray()
        self._news = asyncio.Event()
        os.set_blocking(descriptor, False)
        asyncio.get_running_loop().add_reader(descriptor, self._take)

    @property
    def raw(self) -> str:
        """All that it wrote."""
        return self._read.decode(errors="replace")

    @property
    def text(self) -> str:
        """The same without what moves the cursor and paints."""
        return _CONTROL.sub("", self.raw)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        _set_size(self._descriptor, columns, lines)

    async def expect(self, words: str, *, times: int = 1, within: float = 60) -> None:
        """Wait until it has written something so often."""
        async with asyncio.timeout(within):
            while self.text.count(words) < times:
                assert self.process.returncode is None or self._pending(), self.text
                self._news.clear()
                waiting = asyncio.ensure_future(self._news.wait())
                ended = asyncio.ensure_future(self.process.wait())
                await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                self._take()

    async def end(self, within: float = 60) -> int:
        """Wait until the program has ended; returns its exit code."""
        async with asyncio.timeout(within):
            code = await self.process.wait()
        self._take()
        return code

    def modes(self) -> list[object]:
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._descriptor)[:4]

    def close(self) -> None:
        """Hang up."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self.process.returncode is None:
            self.process.kill()
        os.close(self._descriptor)

    def _pending(self) -> bool:
        before = len(self._read)
        self._take()
        return len(self._read) > before

    def _take(self) -> None:
        try:
            while data := os.read(self._descriptor, 65_536):
                self._read += data
        except (BlockingIOError, OSError):
            pass
        self._news.set()


async def open_terminal(
    *arguments: str, folder: Path, columns: int = 80, lines: int = 24, **environment: str
) -> Terminal:
    """The `headway` command in a terminal of that size."""
    return await open_program(
        *(sys.executable, "-m", "headway_cli", *arguments),
        folder=folder,
        columns=columns,
        lines=lines,
        **environment,
    )


async def open_program(
    *program: str, folder: Path, columns: int = 80, lines: int = 24, **environment: str
) -> Terminal:
    """Any program in a terminal."""
    ours, theirs = pty.openpty()
    _set_size(ours, columns, lines)
    clean = {name: value for name, value in os.environ.items() if "HEADWAY" not in name}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        clean.pop(name, None)
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            cwd=folder,
            env={**clean, "TERM": "xterm-256color", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=functools.partial(_own_terminal, os.ttyname(theirs)),
        )
    finally:
        os.close(theirs)
    return Terminal(process, ours)


def _own_terminal(name: str) -> None:
    """Make the terminal that of a session of its own, so that Ctrl-C reaches the program."""
    os.setsid()
    os.close(os.open(name, os.O_RDWR))


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
