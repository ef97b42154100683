"""Lists and single things, read from the database, and the person who is signed in."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.fields import ManifestId, Name
from headway_contract.http import Role
from headway_contract.operations import OccupancyAnswer, SettingsAnswer, SettingsQuestion
from headway_contract.work_queue import RunAnswer, WorkAnswer
from headway_errors import NotFound
from headway_postgres_kit import DATABASE_CLOCK, Connection
from msgspec import Struct

from headway_console.access.roles import Person
from headway_console.api.endpoints import Endpoint, Tag, endpoint
from headway_console.reading import dead_letters as letters
from headway_console.reading.applications import page_of_applications, page_of_jobs
from headway_console.reading.audit import page_of_audit
from headway_console.reading.events import page_of_events
from headway_console.reading.failing_jobs import page_of_failing_jobs
from headway_console.reading.groups import list_occupancy, page_of_groups
from headway_console.reading.lists import Page
from headway_console.reading.manifests import find_id, page_of_manifests, read_definition
from headway_console.reading.occurrences import Occurrence, page_of_occurrences
from headway_console.reading.pauses import page_of_pauses
from headway_console.reading.runs import page_of_runs, read_run, read_run_log
from headway_console.reading.system import Overview, page_of_workers, read_overview
from headway_console.reading.works import page_of_enqueued, page_of_works, read_work
from headway_console.services import HttpRequest, ask, read

# More lines than a run can keep.
_ALL_LINES = 1_000_000
_MAX_ACTIVE = "HEADWAY_MAX_ACTIVE"


class WhoAnswer(Struct, frozen=True, kw_only=True):
    """Your name in the audit, your role, and how you signed in."""

    name: str
    role: Role | None
    by: str


@endpoint("GET", "/manifests/{manifest}/occurrences", Tag.MANIFESTS)
async def list_occurrences(
    connection: Connection, manifest: ManifestId, cursor: str | None, limit: int
) -> Page[Occurrence]:
    """List the decisions about a manifest's due times: fired, or skipped with a reason."""
    found = await find_id(connection, manifest)
    if found is None:
        raise NotFound(f"there is no manifest {manifest!r}: see 'headway manifests'")
    return await page_of_occurrences(connection, found, cursor=cursor, limit=limit)


@endpoint("GET", "/work/{id}", Tag.WORK)
async def show_work(connection: Connection, id: UUID) -> WorkAnswer:  # noqa: A002
    """Show a piece of work with its runs, by its id or by that of a run."""
    return msgspec.convert(await read_work(connection, id), WorkAnswer, from_attributes=True)


@endpoint("GET", "/runs/{run}", Tag.WORK)
async def show_run(connection: Connection, run: UUID) -> RunAnswer:
    """Show a run: input, output, failure, progress and log."""
    found = await read_run(connection, run, lines=_ALL_LINES)
    return msgspec.convert(found, RunAnswer, from_attributes=True)


@endpoint("GET", "/occupancy", Tag.GROUPS)
async def occupancy(request: HttpRequest, group: Name | None = None) -> OccupancyAnswer:
    """Show active runs and waiting work of groups, with wait reasons."""
    groups = await read(request, list_occupancy, group)
    if group is not None and not groups:
        raise NotFound(f"the group {group!r} has no work: see 'headway groups'")
    subject = subjects.DISPATCHER_SETTINGS_QUESTION
    answer = await ask(request, subject, SettingsQuestion(), SettingsAnswer)
    limits = [setting.value for setting in answer.settings if setting.variable == _MAX_ACTIVE]
    return OccupancyAnswer(max_active=int(limits[0]), groups=groups)


@endpoint("GET", "/overview", Tag.SYSTEM)
async def overview(connection: Connection, heard_since: datetime) -> Overview:
    """Show health, throughput, groups, next fires and failures."""
    now = await DATABASE_CLOCK.now(connection)
    return await read_overview(connection, now=now, heard_since=heard_since)


@endpoint("GET", "/me", Tag.SYSTEM)
async def who_am_i(request: HttpRequest) -> WhoAnswer:
    """Show your name and your role."""
    person: Person = request.user
    return WhoAnswer(name=person.name, role=person.role, by=person.by)


# Routes that a function of `reading` answers by itself.
_AS_READ: dict[str, tuple[str, Tag, Callable[..., Awaitable[Any]]]] = {
    "list_manifests": ("/manifests", Tag.MANIFESTS, page_of_manifests),
    "list_pauses": ("/pauses", Tag.MANIFESTS, page_of_pauses),
    "list_groups": ("/groups", Tag.GROUPS, page_of_groups),
    "list_apps": ("/apps", Tag.DEFINITIONS, page_of_applications),
    "list_jobs": ("/jobs", Tag.JOBS, page_of_jobs),
    "list_failing_jobs": ("/failing", Tag.JOBS, page_of_failing_jobs),
    "list_enqueued": ("/enqueued", Tag.JOBS, page_of_enqueued),
    "list_work": ("/work", Tag.WORK, page_of_works),
    "list_runs": ("/runs", Tag.WORK, page_of_runs),
    "show_log": ("/runs/{run}/log", Tag.WORK, read_run_log),
    "list_workers": ("/workers", Tag.WORK, page_of_workers),
    "list_dead_letters": ("/dead-letters", Tag.LETTERS, letters.page_of_letters),
    "list_failures": ("/failures", Tag.LETTERS, letters.page_of_failures),
    "list_events": ("/events", Tag.SYSTEM, page_of_events),
    "list_audit": ("/audit", Tag.SYSTEM, page_of_audit),
    "show_manifest": ("/manifests/{manifest}", Tag.MANIFESTS, read_definition),
    "show_dead_letter": ("/dead-letters/{id}", Tag.LETTERS, letters.read_letter),
    "show_canary": ("/dead-letters/canaries/{canary}", Tag.LETTERS, letters.read_canary),
}
READS: tuple[Endpoint, ...] = (
    *(endpoint("GET", path, tag, name=name)(call) for name, (path, tag, call) in _AS_READ.items()),
    *(list_occurrences, show_work, show_run, occupancy, overview, who_am_i),
)
