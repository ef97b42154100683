"""Describe stored manifests, names without a manifest, and cycles of dependents."""

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from headway_contract.work import stored_terms

from headway_decisions.wording import utc

# The columns of a manifest that its definition consists of, besides the terms of work.
DEFINITION_COLUMNS = (
    "external_id",
    "job",
    "input",
    "timing",
    "misfire",
    "overlap",
    "jitter_seconds",
    "enabled",
    "dormant",
    "batch",
    "labels",
)


def stored_definition(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored manifest in the shape in which it is declared."""
    definition = {name: row[name] for name in DEFINITION_COLUMNS}
    return {
        **definition,
        **stored_terms(row["terms"]),
        "group": row["group_name"],
        "depends_on": row["parent"],
    }


def by_whom(source: str) -> str:
    """Return who did something, from the source that the audit names."""
    kind, _, name = source.partition("/")
    who = {"operator": f"by {name}", "app": f"by the application {name!r}"}
    return who.get(kind, f"by {source}")


def deleted_message(external_id: str, at: datetime, source: str) -> str:
    """Return the message for a manifest that was deleted."""
    return f"there is no manifest {external_id!r}: it was deleted at {utc(at)} {by_whom(source)}"


def missing_message(external_id: str, names: Iterable[str]) -> str:
    """Return the message for a manifest that never existed; suggest similar names."""
    sought = external_id.lower()
    by_letters = {name.lower(): name for name in names}
    near = [name for name in by_letters if sought and sought in name][:3]
    near = near or difflib.get_close_matches(sought, by_letters, n=3, cutoff=0.6)
    meant = " or ".join(repr(by_letters[name]) for name in near)
    remedy = f"did you mean {meant}?" if meant else "see 'headway manifests'"
    return f"there is no manifest {external_id!r}: {remedy}"


def find_cycles(parents: Mapping[str, str | None]) -> list[list[str]]:
    """Return every cycle among manifests and their parents, as a path back to its start."""
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
