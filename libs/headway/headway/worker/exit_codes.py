"""How processes ended, for those who want to hear of it."""

import asyncio

# More than there are children at once: those of which nobody has ever heard.
_MOST = 10_000


class Exits:
    """Exit codes by process id, each kept until whoever knows the process lets go of it.

    The system gives ids again, so what is kept too long would be taken for another's end.
    """

    def __init__(self) -> None:
        self._codes: dict[int, asyncio.Future[int]] = {}
        self._unwanted: set[int] = set()

    def of(self, pid: int) -> "asyncio.Future[int]":
        """The exit code of a process, when it has ended. Not to be cancelled."""
        return self._codes.setdefault(pid, asyncio.get_running_loop().create_future())

    def note(self, pid: int, code: int) -> None:
        """A process has ended."""
        if pid in self._unwanted:
            self._unwanted.discard(pid)
            return
        if len(self._codes) > _MOST:
            self._codes.clear()
        exit_code = self.of(pid)
        if not exit_code.done():
            exit_code.set_result(code)

    def forget(self, pid: int) -> None:
        """Nobody asks about a process any more, whether it has ended or not."""
        exit_code = self._codes.pop(pid, None)
        if exit_code is None or not exit_code.done():
            self._unwanted.add(pid)

    def forget_all(self) -> None:
        """Nobody will tell how these ended."""
        self._codes.clear()
        self._unwanted.clear()
