"""Dead letters: by failure, as a list, and one in full; and their canaries."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import dead_letters as contract
from headway_contract.fields import ManifestId, Name
from headway_decisions.retries.dead_letters import format_fingerprint, parse_fingerprint
from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Listing, Page, read_row

queries = Queries("headway_console.reading", "sql/dead_letters.sql")

_FAILURES = Listing("failures", "last_at", kind=str)
_LETTERS = Listing("dead letters", "created_at")


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
    state: contract.LetterState | None = "awaiting",
    group: Name | None = None,
    job: Name | None = None,
    manifest: ManifestId | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[FailureGroup]:
    """List dead letters by failure, the latest first."""
    place = _FAILURES.time_and_id(cursor)
    rows = await connection.fetch(
        queries["failures"], state, group, job, manifest, *place, limit + 1
    )
    return _FAILURES.page(rows, limit, lambda row: read_row(FailureGroup, row, **_failure(row)))


async def page_of_letters(
    connection: Connection,
    filters: contract.LetterFilter,
    *,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[contract.DeadLetterStatus]:
    """List dead letters, the newest first."""
    fingerprint, version = (
        (None, None) if filters.fingerprint is None else parse_fingerprint(filters.fingerprint)
    )
    rows = await connection.fetch(
        queries["page"],
        *(filters.group, filters.job, filters.manifest, fingerprint, version, filters.state),
        *(filters.created_after, filters.created_before),
        *_LETTERS.time_and_id(cursor),
        limit + 1,
    )
    return _LETTERS.page(rows, limit, _status)


async def read_letter(connection: Connection, id: UUID) -> contract.DeadLetterAnswer:  # noqa: A002
    """Show a dead letter, by its id or by that of its work."""
    row = await connection.fetchrow(queries["letter"], id)
    if row is None:
        raise NotFound(
            f"there is no dead letter {id}, and no dead letter of work {id}: "
            "see 'headway dead-letters list --state all'"
        )
    stored = {name: row[name] for name in ("cause", "input", "failure", "runs")}
    return msgspec.convert(
        {"status": _status(row), "edit": row["edit"] or [], **stored}, contract.DeadLetterAnswer
    )


async def manifest_of(connection: Connection, letter: UUID) -> UUID | None:
    """Return the id of the manifest of a dead letter; `None` for enqueued work."""
    found: UUID | None = await connection.fetchval(queries["manifest_of"], letter)
    return found


async def read_canary(connection: Connection, canary: UUID) -> contract.CanaryStatus:
    """Show the progress of a canary."""
    row = await connection.fetchrow(queries["canary"], canary)
    if row is None:
        raise NotFound(f"there is no canary {canary}")
    return msgspec.convert(dict(row), contract.CanaryStatus)


async def latest_canary(connection: Connection, fingerprint: str) -> contract.CanaryStatus | None:
    """Return the latest canary of a failure, or `None`."""
    row = await connection.fetchrow(queries["latest_canary"], fingerprint)
    return None if row is None else msgspec.convert(dict(row), contract.CanaryStatus)


def _status(row: Any) -> contract.DeadLetterStatus:
    return read_row(contract.DeadLetterStatus, row, dead_letter=row["id"], **_failure(row))


def _failure(row: Any) -> dict[str, str]:
    return {
        "fingerprint": format_fingerprint(row["fingerprint"], row["code_version"]),
        "failure_kind": row["failure_kind"] or "",
        "failure_message": row["failure_message"] or "",
    }
