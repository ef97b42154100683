"""Which fire times a person would say have moved: what vanishes, paired with what comes instead.

Times are paired within a day, and what is left over within a week: monthly cadences within a month,
one-shots wherever they go. As many that vanish as appear are paired in their order; where the
numbers differ, only a few, each with the one that is nearest to it. What would be paired with a
time that is over already, or lies behind all that is compared, is paired with no other day's.
"""

from collections.abc import Hashable, Iterator, Sequence
from datetime import date

from headway_decisions.timing.cadence import Monthly, MonthlyDow, Once
from headway_decisions.timing.timing import Timing

Pair = tuple[int, int]

# More than these nobody matches up by eye, and more in one day nobody takes for those of another.
_FEW = 6
_FEW_OF_A_DAY = 24


class Pairing:
    """Takes what vanishes and appears day by day, and gives out pairs as they are found."""

    def __init__(self, before: Timing, after: Timing) -> None:
        self._cadences = (before.cadence, after.cadence)
        self._period: Hashable = None
        self._vanish: list[int] = []
        self._appear: list[int] = []

    def day(
        self, day: date, vanish: Sequence[int], appear: Sequence[int], unseen: Sequence[bool]
    ) -> list[Pair]:
        """The pairs that are known now that a day has been seen.

        `unseen` says whether before, and afterwards, the day has times that are not compared.
        """
        period = self._period_of(day)
        found = self.rest() if period != self._period else []
        self._period = period
        pairs = paired(vanish, appear)
        if len(vanish) + len(appear) <= _FEW_OF_A_DAY:
            gone, come = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
            unseen_before, unseen_after = unseen
            self._vanish += (one for one in vanish if one not in gone and not unseen_after)
            self._appear += (one for one in appear if one not in come and not unseen_before)
        return found + pairs

    def rest(self) -> list[Pair]:
        """The pairs among what no day has paired."""
        found = []
        if len(self._vanish) == len(self._appear):
            found = list(zip(self._vanish, self._appear, strict=True))
        self._vanish, self._appear = [], []
        return found

    def _period_of(self, day: date) -> Hashable:
        if all(isinstance(one, Once) for one in self._cadences):
            return "ever"
        if all(isinstance(one, Monthly | MonthlyDow) for one in self._cadences):
            return (day.year, day.month)
        return day.isocalendar()[:2]


def paired(vanish: Sequence[int], appear: Sequence[int]) -> list[Pair]:
    """Pair times of one day, one to one."""
    if len(vanish) == len(appear):
        return list(zip(vanish, appear, strict=True))
    return list(_nearest(vanish, appear)) if len(vanish) + len(appear) <= _FEW else []


def _nearest(vanish: Sequence[int], appear: Sequence[int]) -> Iterator[Pair]:
    """The pairs each of which is the nearest to the other."""
    for gone in vanish:
        come = min(appear, key=lambda one: abs(one - gone), default=None)
        if come is not None and gone == min(vanish, key=lambda one: abs(one - come)):
            yield gone, come
