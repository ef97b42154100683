"""Locks on files: the kernel frees them with their last holder, so none is ever stale."""

import asyncio
import fcntl
import os
from pathlib import Path

RETRY_SECONDS = 0.02


class Lock:
    """A locked file that names its holder, and still names it when the holder died."""

    def __init__(self, path: Path) -> None:
        """Prepare a lock on `path` without taking it."""
        self.path = path
        self.left_behind = False
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The file descriptor; a process that inherits it holds the lock too."""
        if self._descriptor is None:
            raise RuntimeError(f"lock {self.path} is not taken")
        return self._descriptor

    def holder(self) -> str:
        """The process id that the file names, or an empty string."""
        return self.path.read_text().strip()

    def try_take(self) -> bool:
        """Take the lock unless somebody holds it."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.left_behind = os.fstat(descriptor).st_size > 0
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
        """Take the lock, waiting some seconds for its holders to end."""
        try:
            async with asyncio.timeout(within):
                # The kernel tells nobody that a lock is free except those blocked in a thread.
                while not self.try_take():
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            return False
        return True

    def release(self, *, clean: bool) -> None:
        """Give up this process's part; an unclean end leaves the holder's name for the next."""
        if self._descriptor is None:
            return
        if clean:
            os.ftruncate(self._descriptor, 0)
        # Closed and not unlocked: unlocking would also take it from those who inherited it.
        os.close(self._descriptor)
        self._descriptor = None
