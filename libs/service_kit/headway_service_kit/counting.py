"""Counts of what a process passed over on purpose, so that nothing disappears without a trace."""

from collections import Counter


class Counts:
    """Numbers by name, since the process began."""

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Count something."""
        if number:
            self._numbers[name] += number

    def read(self) -> dict[str, int]:
        """All numbers, by name."""
        return dict(sorted(self._numbers.items()))


PASSED_OVER = Counts()
