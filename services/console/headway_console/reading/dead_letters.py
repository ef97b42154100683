"""Dead letters: by what failed, those of one failure, and one in full."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.dispatching import (
    Attempt,
    DeadLetterAnswer,
    DeadLetterStatus,
    LetterFilter,
    LetterState,
)
from headway_contract.lifecycle import Failure
from headway_contract.settled import InputChange
from headway_decisions.retries import dead_letters
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, page_of, read_cursor, time_and_id

queries = Queries("headway_console.reading", "sql/dead_letters.sql")

_FAILURES, _LETTERS = "failures", "dead letters"


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Dead letters of the same failure.

    `fingerprint` has the version of the code that failed with it, if that is known; `asked` is how
    many of them somebody wants retried, and that wait for their slots. The sample is the latest.
    """

    fingerprint: str
    code_version: str
    letters: int
    asked: int
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
    group: str | None = None,
    job: str | None = None,
    manifest: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[FailureGroup]:
    """A page of failures, those with the latest dead letters first."""
    place = read_cursor(_FAILURES, cursor)
    after = (None, None) if place is None else (place.at, str(place.id))
    rows = await connection.fetch(
        queries["failures"], state, group, job, manifest, *after, limit + 1
    )
    return page_of(_FAILURES, rows, limit, _failure_group, "last_at")


async def page_of_letters(
    connection: Connection, asked: LetterFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[DeadLetterStatus]:
    """A page of dead letters, the newest first."""
    print_, version = (
        (None, None)
        if asked.fingerprint is None
        else dead_letters.parse_fingerprint(asked.fingerprint)
    )
    rows = await connection.fetch(
        queries["page"],
        *(asked.group, asked.job, asked.manifest, print_, version, asked.state),
        *(asked.created_after, asked.created_before),
        *time_and_id(_LETTERS, cursor),
        limit + 1,
    )
    return page_of(_LETTERS, rows, limit, _status, "created_at")


async def read_letter(connection: Connection, letter: UUID) -> DeadLetterAnswer | None:
    """One dead letter in full: what failed, on which input, in which runs, how it was edited."""
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
    """The manifest that a dead letter is of, by its own id; none for enqueued work."""
    found: UUID | None = await connection.fetchval(queries["manifest_of"], letter)
    return found


async def count_awaiting(connection: Connection) -> int:
    """How many dead letters await somebody."""
    count: int = await connection.fetchval(queries["awaiting"])
    return count


def _failure_group(row: Any) -> FailureGroup:
    return FailureGroup(
        fingerprint=dead_letters.format_fingerprint(row["fingerprint"], row["code_version"]),
        failure_kind=row["failure_kind"] or "",
        failure_message=row["failure_message"] or "",
        jobs=list(row["jobs"]),
        groups=list(row["groups"]),
        **{
            name: row[name]
            for name in (
                *("code_version", "letters", "asked", "first_at", "last_at", "sample"),
                *("sample_job", "sample_manifest"),
            )
        },
    )


def _status(row: Any) -> DeadLetterStatus:
    return DeadLetterStatus(
        dead_letter=row["id"],
        work=row["work_id"],
        group=row["group_name"],
        fingerprint=dead_letters.format_fingerprint(row["fingerprint"], row["code_version"]),
        failure_kind=row["failure_kind"] or "",
        failure_message=row["failure_message"] or "",
        **{
            name: row[name]
            for name in (
                *("round", "manifest", "job", "reason", "attempts", "state", "created_at"),
                *("resolved_at", "actor", "note", "retry_asked_at", "retry_asked_by", "waits_for"),
            )
        },
    )
