"""How a cycle that cannot take everything shares its room between groups.

Every group with something due gets the same share first, so that thousands of one group
never crowd out the few of another. What is left goes to the groups of higher priority.
"""

from collections.abc import Sequence

from msgspec import Struct


class DueGroup(Struct, frozen=True, kw_only=True):
    """A group with manifests that are due, and how many."""

    name: str
    priority: int
    due: int


def share(groups: Sequence[DueGroup], limit: int) -> dict[str, int]:
    """How many manifests each group may have decided in this cycle."""
    if not groups:
        return {}
    ordered = sorted(groups, key=lambda group: (-group.priority, group.name))
    base = limit // len(ordered)
    shares = {group.name: min(base, group.due) for group in ordered}
    left = limit - sum(shares.values())
    for group in ordered:
        extra = min(left, group.due - shares[group.name])
        shares[group.name] += extra
        left -= extra
    return {name: room for name, room in shares.items() if room}
