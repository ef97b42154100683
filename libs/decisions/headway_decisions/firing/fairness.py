"""How a cycle that cannot take everything shares its room between groups.

Every group with something due gets the same share first, so that thousands of one group
never crowd out the few of another. What is left goes to the groups of higher priority. Where
there are more groups than room, a share is one: for groups of higher priority, then for those
that have waited the longest.

To count what is due costs as much as is due. So of a large backlog a good part is shared at once,
for several cycles to come: then all of it together costs in proportion to what was due.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

# What part of a backlog is shared at once, and for how many cycles at most: that is how long what
# falls due in the meantime has to wait.
_PART = 4
_MOST_CYCLES = 20

Entry = TypeVar("Entry")


class DueGroup(Struct, frozen=True, kw_only=True):
    """A group with manifests that are due: how many, and since when the first of them is."""

    name: str
    priority: int
    due: int
    since: datetime


def share(groups: Sequence[DueGroup], limit: int) -> dict[str, int]:
    """How many manifests each group may have decided in this cycle."""
    if not groups:
        return {}
    ordered = sorted(groups, key=lambda group: (-group.priority, group.since, group.name))[:limit]
    base = limit // len(ordered)
    shares = {group.name: min(base, group.due) for group in ordered}
    left = limit - sum(shares.values())
    for group in ordered:
        extra = min(left, group.due - shares[group.name])
        shares[group.name] += extra
        left -= extra
    return {name: room for name, room in shares.items() if room}


def cycles_ahead(due: int, limit: int) -> int:
    """For how many cycles to share, if so much is due."""
    return min(max(due // (_PART * limit), 1), _MOST_CYCLES)


def in_cycles(shared: Mapping[str, Sequence[Entry]], limit: int) -> list[list[Entry]]:
    """What each group may have decided, in its order, cut into cycles that have a part of each."""
    placed = [
        (place / len(entries), number, entry)
        for number, entries in enumerate(shared.values())
        for place, entry in enumerate(entries)
    ]
    ordered = [entry for *_, entry in sorted(placed, key=lambda one: one[:2])]
    return [ordered[start : start + limit] for start in range(0, len(ordered), limit)]
