"""Which events of a growing history were seen, although they may appear out of order."""

from collections.abc import Iterable

# How long a number that cannot be seen yet is waited for: longer than any transaction of ours may
# take. Most of them were rolled back.
PATIENCE_SECONDS = 60.0


class Numbers:
    """What was seen of a history.

    Numbers are drawn before a transaction commits, so a lower one may appear after a higher one.
    """

    def __init__(self, after: int) -> None:
        self.settled = after
        self._seen: set[int] = set()
        self._missed_since: dict[int, float] = {}

    @property
    def highest(self) -> int:
        """The highest number that was seen."""
        return max(self._seen, default=self.settled)

    def news(self, visible: Iterable[int], now: float) -> list[int]:
        """Those that were not seen before; `now` tells when a gap is given up."""
        new = [number for number in visible if number > self.settled and number not in self._seen]
        self._seen.update(new)
        self._settle(now)
        return new

    def _settle(self, now: float) -> None:
        while self._seen:
            following = self.settled + 1
            if following in self._seen:
                self._seen.discard(following)
            elif now - self._missed_since.setdefault(following, now) < PATIENCE_SECONDS:
                return
            self._missed_since.pop(following, None)
            self.settled = following
