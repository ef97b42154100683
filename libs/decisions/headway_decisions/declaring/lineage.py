"""Dependents: a manifest has at most one parent, and is never its own ancestor."""

from collections.abc import Mapping


def find_cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """Return every cycle among manifests, as a path back to its start."""
    cycles: list[list[str]] = []
    done: set[str] = set()
    for start in parents:
        path: list[str] = []
        place: str | None = start
        while place is not None and place not in done and place not in path:
            path.append(place)
            place = parents.get(place)
        if place is not None and place in path:
            cycles.append([*path[path.index(place) :], place])
        done.update(path)
    return cycles
