"""How a cycle that cannot take everything shares its room between groups.

Every group with something due gets the same share first, so that thousands of one group
never crowd out the few of another. What is left goes to the groups of higher priority. Where
there are more groups than room, a share is one: for groups of higher priority, then for those
that have waited the longest.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct


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
