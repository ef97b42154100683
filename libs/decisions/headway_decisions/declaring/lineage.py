"""Who depends on whom: a manifest has one parent at most, and never itself as an ancestor."""

from collections.abc import Mapping


def find_cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """Every cycle among manifests, each as the path that leads back to where it began."""
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
