"""Share a full cycle between groups.

Every group with due manifests gets the same share first, so that thousands of one group never crowd
out the few of another. The rest goes to groups of higher priority. Counting due manifests costs in
proportion to the backlog, so a large backlog is shared for several cycles at once.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from msgspec import Struct

# The part of a backlog to share at once, and for how many cycles at most: new due manifests wait
# that long.
_PART = 4
_MOST_CYCLES = 20

Entry = TypeVar("Entry")


class DueGroup(Struct, frozen=True, kw_only=True):
    """A group with due manifests: their number, and the earliest due time."""

    name: str
    priority: int
    due: int
    since: datetime


def share(groups: Sequence[DueGroup], limit: int) -> dict[str, int]:
    """Return the share of each group in this cycle."""
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
    """Return for how many cycles to share."""
    return min(max(due // (_PART * limit), 1), _MOST_CYCLES)


def in_cycles(shared: Mapping[str, Sequence[Entry]], limit: int) -> list[list[Entry]]:
    """Split the shares into cycles, each with a part of every group."""
    placed = [
        (place / len(entries), number, entry)
        for number, entries in enumerate(shared.values())
        for place, entry in enumerate(entries)
    ]
    ordered = [entry for *_, entry in sorted(placed, key=lambda placement: placement[:2])]
    return [ordered[start : start + limit] for start in range(0, len(ordered), limit)]
