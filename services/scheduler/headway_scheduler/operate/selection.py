"""Find the manifests that an operator's request means: by name, by group, by labels, or all."""

from typing import Any

from headway_contract.manifests import Selection
from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection

from headway_scheduler.lookup import find_manifest
from headway_scheduler.store import manifests


async def choose(connection: Connection, chosen: Selection, *, paused: bool = False) -> list[Any]:
    """The ids of the manifests that a request means, in the order of their external ids.

    With `paused` only those that are; a name that nobody bears is refused either way.
    """
    ways = [bool(chosen.manifests), chosen.group is not None, bool(chosen.labels), chosen.all]
    if sum(ways) != 1:
        raise Invalid(
            "say which manifests are meant, in one way: by their names, by a group, by labels, or "
            "all of them"
        )
    rows: list[Any] = await connection.fetch(
        manifests["chosen"],
        chosen.manifests or None,
        chosen.group,
        chosen.labels or None,
        paused,
    )
    found = {row["external_id"] for row in rows}
    for named in chosen.manifests:
        if named not in found:
            # One that is not paused is fine; one that nobody knows is not.
            await find_manifest(connection, named)
    if not rows and not paused:
        raise NotFound("there is no such manifest: see 'headway manifests'")
    return rows
