"""Read requests: find the manifests that they name, and check times and inputs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.inputs import problem_of_input
from headway.define.jobs import holds_nul
from headway_contract.fields import INPUT_LIMIT
from headway_contract.manifests import Selection
from headway_decisions.declaring.lookup import deleted_message, missing_message
from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection, Database, Queries

from headway_scheduler.store import manifests

queries = Queries("headway_scheduler", "sql/questions.sql")

# Ids that are compared to suggest similar names.
_MOST_COMPARED = 2000
# Calendars and zones are uncertain outside of these years.
_KNOWN_YEARS = range(1970, 2200)


@asynccontextmanager
async def reading(database: Database) -> AsyncIterator[tuple[Connection, datetime]]:
    """Open a read-only transaction on one snapshot.

    Long computations come after it: the server ends a transaction that stays idle.
    """
    async with database.snapshot() as connection:
        yield connection, await database.clock.now(connection)


async def find_manifest(connection: Connection, external_id: str) -> Any:
    """Return the row of a manifest with its group and parent; raises `NotFound`."""
    # PostgreSQL accepts no NUL, and no manifest has one.
    sought = external_id.replace("\x00", "")
    row = await connection.fetchrow(queries["find_manifest"], sought)
    if row is not None:
        return row
    deleted = await connection.fetchrow(queries["deleted"], sought)
    if deleted is not None:
        raise NotFound(deleted_message(external_id, deleted["occurred_at"], deleted["source"]))
    rows = await connection.fetch(queries["similar_names"], sought, _MOST_COMPARED)
    raise NotFound(missing_message(external_id, [row["external_id"] for row in rows]))


async def lock_manifest(connection: Connection, external_id: str) -> UUID:
    """Lock a manifest by its name; raises `NotFound`."""
    sought = external_id.replace("\x00", "")
    found: UUID | None = None
    while found is None:
        found = await connection.fetchval(manifests["lock_named"], sought)
        if found is None:
            # This raises, unless the manifest was declared meanwhile.
            await find_manifest(connection, external_id)
    return found


async def select_manifests(connection: Connection, selection: Selection) -> list[Any]:
    """Return the rows of the manifests that a request selects, ordered by external id."""
    ways = [
        bool(selection.manifests),
        selection.group is not None,
        bool(selection.labels),
        selection.all,
    ]
    if sum(ways) != 1:
        raise Invalid("select manifests in one way: by their names, by a group, by labels, or all")
    rows: list[Any] = await connection.fetch(
        manifests["chosen"],
        selection.manifests or None,
        selection.group,
        selection.labels or None,
    )
    found = {row["external_id"] for row in rows}
    for name in selection.manifests:
        if name not in found:
            # This raises, unless the manifest was declared meanwhile.
            await find_manifest(connection, name)
    if not rows:
        raise NotFound("no manifest matches: see 'headway manifests'")
    return rows


def aware(at: datetime) -> datetime:
    """Return a time that has an offset and a plausible year; raises `Invalid` otherwise."""
    if at.tzinfo is None:
        raise Invalid(
            f"the time {at.isoformat()} has no offset: write one, as in {at.isoformat()}Z"
        )
    if at.year not in _KNOWN_YEARS:
        first, last = _KNOWN_YEARS[0], _KNOWN_YEARS[-1]
        raise Invalid(f"the year of {at.isoformat()} is not between {first} and {last}")
    return at


def input_problem(
    job: str, schema: dict[str, Any] | None, takes_input: bool, value: Any
) -> str | None:
    """Return why a job cannot take an input from a request, or `None`."""
    problem = problem_of_input(schema, takes_input, value)
    if problem is not None:
        return f"the input does not fit job {job!r}: {problem}"
    encoded = msgspec.json.encode(value)
    if len(encoded) > INPUT_LIMIT:
        return f"the input is larger than {INPUT_LIMIT} bytes: send where it is found"
    if holds_nul(encoded):
        return "the input holds a NUL character, which cannot be stored"
    return None
