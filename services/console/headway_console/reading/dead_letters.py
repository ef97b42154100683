"""Dead letters: by failure, as a list, and one in full."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.dead_letters import (
    Attempt,
    DeadLetterAnswer,
    DeadLetterStatus,
    LetterFilter,
    LetterState,
)
from headway_contract.fields import ManifestId, Name
from headway_contract.lifecycle import Failure
from headway_contract.settled import InputChange
from headway_decisions.retries import dead_letters
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, page_of, read_cursor, read_row, time_and_id

queries = Queries("headway_console.reading", "sql/dead_letters.sql")

_FAILURES, _LETTERS = "failures", "dead letters"


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Dead letters of the same failure.

    `fingerprint` includes the version of the code, if known; `asked` counts retries that wait for
    their slots. The sample is the latest.
    """

    fingerprint: str
    code_version: str
    letters: int
    asked: int  # language: allow
    first_at: datetime
    last_at: datetime
    jobs: list[str]
    groups: list[str]
    failure_kind: str
    failure_message: str
    sample: UUID
    sample_job: str
    sample_manifest: str | None


async def page_of_failures(
    connection: Connection,
    *,
    state: LetterState | None = "awaiting",
    group: Name | None = None,
    job: Name | None = None,
    manifest: ManifestId | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[FailureGroup]:
    """List dead letters by failure, the latest first."""
    place = read_cursor(_FAILURES, cursor)
    after = (None, None) if place is None else (place.at, str(place.id))
    rows = await connection.fetch(
        queries["failures"], state, group, job, manifest, *after, limit + 1
    )
    return page_of(_FAILURES, rows, limit, _failure_group, "last_at")


async def page_of_letters(
    connection: Connection, filters: LetterFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[DeadLetterStatus]:
    """List dead letters, the newest first."""
    print_, version = (
        (None, None)
        if filters.fingerprint is None
        else dead_letters.parse_fingerprint(filters.fingerprint)
    )
    rows = await connection.fetch(
        queries["page"],
        *(filters.group, filters.job, filters.manifest, print_, version, filters.state),
        *(filters.created_after, filters.created_before),
        *time_and_id(_LETTERS, cursor),
        limit + 1,
    )
    return page_of(_LETTERS, rows, limit, _status, "created_at")


async def read_letter(connection: Connection, letter: UUID) -> DeadLetterAnswer | None:
    """Return a dead letter in full, by its id or by that of its work; `None` if unknown."""
    row = await connection.fetchrow(queries["letter"], letter)
    if row is None:
        return None
    return DeadLetterAnswer(
        status=_status(row),
        cause=row["cause"],
        input=row["input"],
        failure=msgspec.convert(row["failure"], Failure),
        runs=msgspec.convert(row["runs"], list[Attempt]),
        edit=msgspec.convert(row["edit"] or [], list[InputChange]),
    )


async def manifest_of(connection: Connection, letter: UUID) -> UUID | None:
    """Return the id of the manifest of a dead letter; `None` for enqueued work."""
    found: UUID | None = await connection.fetchval(queries["manifest_of"], letter)
    return found


async def count_awaiting(connection: Connection) -> int:
    """Count the open dead letters."""
    count: int = await connection.fetchval(queries["awaiting"])
    return count


def _failure_group(row: Any) -> FailureGroup:
    return read_row(FailureGroup, row, **_failure(row))


def _status(row: Any) -> DeadLetterStatus:
    ids = {"dead_letter": row["id"], "work": row["work_id"], "group": row["group_name"]}
    return read_row(DeadLetterStatus, row, **ids, **_failure(row))


def _failure(row: Any) -> dict[str, str]:
    return {
        "fingerprint": dead_letters.format_fingerprint(row["fingerprint"], row["code_version"]),
        "failure_kind": row["failure_kind"] or "",
        "failure_message": row["failure_message"] or "",
    }
