"""Files of a data folder: locks, secrets, logs, and the error that names the folder."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_POLL_SECONDS = 0.02
TAIL_LINES = 12
TAIL_BYTES = 8192


class EmbeddedError(Exception):
    """A server cannot run here; the message names the cause and the remedy."""


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the file system as errors of the data folder."""
    try:
        yield
    except OSError as error:
        where = f" at {error.filename}" if error.filename else ""
        raise EmbeddedError(
            f"data folder {folder} cannot be used ({error.strerror or error}{where}); "
            "make it writable or choose another folder with --data"
        ) from error


def make_folder(folder: Path) -> None:
    """Create a data folder, which git ignores, unless it exists."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")


class Lock:
    """A locked file that contains the process id of its holder.

    The kernel releases the lock with its last holder. The id remains after an unclean end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_unclean = False
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The file descriptor; a process that inherits it holds the lock too."""
        if self._descriptor is None:
            raise RuntimeError(f"lock {self.path} is not taken")
        return self._descriptor

    def holder(self) -> str:
        """Return the process id in the file, or an empty string."""
        return self.path.read_text().strip()

    def try_take(self) -> bool:
        """Take the lock unless another process holds it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.was_unclean = os.fstat(descriptor).st_size > 0
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    async def take(self, within: float) -> bool:
        """Take the lock; wait up to `within` seconds for its holders to end."""
        try:
            async with asyncio.timeout(within):
                # The kernel notifies only threads that block on the lock.
                while not self.try_take():
                    await asyncio.sleep(LOCK_POLL_SECONDS)
        except TimeoutError:
            return False
        return True

    def release(self, *, clean: bool) -> None:
        """Close this process's descriptor; an unclean end keeps the holder's id in the file."""
        if self._descriptor is None:
            return
        if clean:
            os.ftruncate(self._descriptor, 0)
        # Not unlocked: that would also take the lock from processes that inherited it.
        os.close(self._descriptor)
        self._descriptor = None


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, replacing an older one."""
    make_folder(path.parent)
    # A new file, because an existing one would keep its mode.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@contextmanager
def fresh_log(path: Path) -> Iterator[int]:
    """Open an empty log as a descriptor; the previous log is kept as `.1`."""
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def last_lines(path: Path) -> str:
    """Return the end of a log, indented for a message."""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = log.read().decode(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (nothing)"
