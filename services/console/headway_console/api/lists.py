"""Lists, read from the database."""

from uuid import UUID

from headway_contract.fields import ManifestId
from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection

from headway_console.api.endpoints import (
    DEFINITIONS,
    GROUPS,
    JOBS,
    LETTERS,
    MANIFESTS,
    SYSTEM,
    WORK,
    Endpoint,
    endpoint,
)
from headway_console.reading.applications import page_of_applications
from headway_console.reading.audit import page_of_audit
from headway_console.reading.dead_letters import page_of_failures, page_of_letters
from headway_console.reading.enqueued import page_of_enqueued
from headway_console.reading.events import page_of_events
from headway_console.reading.groups import page_of_groups
from headway_console.reading.manifests import find_id, page_of_jobs, page_of_manifests
from headway_console.reading.occurrences import Occurrence, page_of_occurrences
from headway_console.reading.pages import Page
from headway_console.reading.runs import RunFilter, RunRow, page_of_runs
from headway_console.reading.workers import page_of_workers
from headway_console.reading.works import page_of_works, read_work

_BESIDE_WORK = ("group", "job", "manifest", "manifest_id", "worker", "since", "before", "text")


@endpoint("GET", "/manifests/{manifest}/occurrences", MANIFESTS)
async def list_occurrences(
    connection: Connection, manifest: ManifestId, cursor: str | None, limit: int
) -> Page[Occurrence]:
    """List the decisions about a manifest's due times: fired, or skipped with a reason."""
    found = await find_id(connection, manifest)
    if found is None:
        raise NotFound(f"there is no manifest {manifest!r}: see 'headway manifests'")
    return await page_of_occurrences(connection, found, cursor=cursor, limit=limit)


@endpoint("GET", "/runs", WORK)
async def list_runs(
    connection: Connection,
    filters: RunFilter,
    cursor: str | None,
    limit: int,
    work: UUID | None = None,
) -> Page[RunRow]:
    """List runs, the newest first."""
    if work is None:
        return await page_of_runs(connection, filters, cursor=cursor, limit=limit)
    others = [name for name in _BESIDE_WORK if getattr(filters, name) is not None]
    if others or cursor is not None:
        names = ", ".join(others or ["cursor"])
        raise Invalid(f"work: it cannot be combined with {names}, only with a state")
    found = await read_work(connection, work)
    newest_first = [] if found is None else found.runs[::-1]
    return Page(items=[run for run in newest_first if filters.state in (None, run.state)])


LISTS: tuple[Endpoint, ...] = (
    endpoint("GET", "/manifests", MANIFESTS, name="list_manifests")(page_of_manifests),
    list_occurrences,
    endpoint("GET", "/groups", GROUPS, name="list_groups")(page_of_groups),
    endpoint("GET", "/apps", DEFINITIONS, name="list_apps")(page_of_applications),
    endpoint("GET", "/jobs", JOBS, name="list_jobs")(page_of_jobs),
    endpoint("GET", "/enqueued", JOBS, name="list_enqueued")(page_of_enqueued),
    endpoint("GET", "/work", WORK, name="list_work")(page_of_works),
    list_runs,
    endpoint("GET", "/workers", WORK, name="list_workers")(page_of_workers),
    endpoint("GET", "/dead-letters", LETTERS, name="list_dead_letters")(page_of_letters),
    endpoint("GET", "/failures", LETTERS, name="list_failures")(page_of_failures),
    endpoint("GET", "/events", SYSTEM, name="list_events")(page_of_events),
    endpoint("GET", "/audit", SYSTEM, name="list_audit")(page_of_audit),
)
