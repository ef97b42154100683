"""Lists, which the console reads from the database itself."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar
from uuid import UUID

from headway_contract.dispatching import (
    DeadLetterStatus,
    LetterFilter,
    WorkerStatus,
    WorkStatus,
)
from headway_contract.http import InvalidRequest
from headway_contract.routes import (
    DEFINITIONS,
    GROUPS,
    JOBS,
    LETTERS,
    MANIFESTS,
    SYSTEM,
    WORK,
    Route,
)
from headway_contract.scheduling import EnqueuedStatus
from headway_errors import NotFound
from headway_postgres_kit import DATABASE_CLOCK, Connection, Database
from litestar import Request
from msgspec import Struct

from headway_console.api.endpoints import Endpoint
from headway_console.api.requests import (
    ApplicationsAsked,
    AuditAsked,
    EnqueuedAsked,
    EventsAsked,
    FailuresAsked,
    GroupsAsked,
    JobsAsked,
    LettersAsked,
    ManifestsAsked,
    OccurrencesAsked,
    RunsAsked,
    WorkAsked,
    WorkersAsked,
)
from headway_console.reading import (
    Page,
    applications,
    audit,
    dead_letters,
    enqueued,
    events,
    groups,
    manifests,
    runs,
)
from headway_console.reading import occurrences as ledger
from headway_console.reading import workers as crew
from headway_console.reading import works as queue
from headway_console.settings import ConsoleSettings

_BESIDE_WORK = ("group", "job", "manifest", "manifest_id", "worker", "since", "before", "text")


class Paging(TypedDict):
    """Which page of a list, as all of them take it."""

    cursor: str | None
    limit: int


async def _manifests(db: Connection, asked: ManifestsAsked, _: "Now", page: Paging) -> Any:
    labels = dict(_label(one) for one in asked.label)
    wanted = narrowed(manifests.ManifestFilter, asked, labels=labels)
    return await manifests.page_of_manifests(db, wanted, **page)


async def _groups(db: Connection, asked: GroupsAsked, _: "Now", page: Paging) -> Any:
    return await groups.page_of_groups(db, name=asked.name, **page)


async def _applications(db: Connection, _: ApplicationsAsked, __: "Now", page: Paging) -> Any:
    return await applications.page_of_applications(db, **page)


async def _work(db: Connection, asked: WorkAsked, _: "Now", page: Paging) -> Any:
    manifest = await _id_of(db, asked.manifest, asked.manifest_id)
    wanted = narrowed(queue.WorkFilter, asked, manifest=manifest)
    return await queue.page_of_works(db, wanted, **page)


async def _runs(db: Connection, asked: RunsAsked, _: "Now", page: Paging) -> Any:
    if asked.work is not None:
        return await _runs_of_work(db, asked, asked.work)
    manifest = await _id_of(db, asked.manifest, asked.manifest_id)
    return await runs.page_of_runs(db, narrowed(runs.RunFilter, asked, manifest=manifest), **page)


async def _runs_of_work(db: Connection, asked: RunsAsked, work: UUID) -> Page[runs.RunRow]:
    """Those of one piece of work, which are few: all on one page, the newest first."""
    others = [name for name in _BESIDE_WORK if getattr(asked, name) is not None]
    if others or asked.cursor is not None:
        raise InvalidRequest(f"work: with it go no {', '.join(others or ['cursor'])}, only a state")
    found = await queue.read_work(db, work)
    of_it = [] if found is None else reversed(found.runs)
    return Page(items=[one for one in of_it if asked.state in (None, one.state)])


async def _letters(db: Connection, asked: LettersAsked, _: "Now", page: Paging) -> Any:
    return await dead_letters.page_of_letters(db, narrowed(LetterFilter, asked), **page)


async def _failures(db: Connection, asked: FailuresAsked, _: "Now", page: Paging) -> Any:
    narrow = {name: getattr(asked, name) for name in ("state", "group", "job", "manifest")}
    return await dead_letters.page_of_failures(db, **narrow, **page)


async def _workers(db: Connection, asked: WorkersAsked, now: "Now", page: Paging) -> Any:
    return await crew.page_of_workers(
        db, heard_since=now.heard_since, alive_only=asked.alive_only, **page
    )


async def _jobs(db: Connection, asked: JobsAsked, now: "Now", page: Paging) -> Any:
    return await manifests.page_of_jobs(db, heard_since=now.heard_since, text=asked.text, **page)


async def _enqueued(db: Connection, asked: EnqueuedAsked, _: "Now", page: Paging) -> Any:
    return await enqueued.page_of_enqueued(db, refused_only=asked.refused_only, **page)


async def _events(db: Connection, asked: EventsAsked, _: "Now", page: Paging) -> Any:
    wanted = narrowed(events.EventFilter, asked, types=asked.type)
    return await events.page_of_events(db, wanted, **page)


async def _audit(db: Connection, asked: AuditAsked, _: "Now", page: Paging) -> Any:
    wanted = narrowed(audit.AuditFilter, asked, actions=asked.action)
    return await audit.page_of_audit(db, wanted, **page)


async def _occurrences(db: Connection, asked: OccurrencesAsked, _: "Now", page: Paging) -> Any:
    manifest = await manifests.find_id(db, asked.manifest)
    if manifest is None:
        raise NotFound(f"there is no manifest {asked.manifest!r}: see 'headway manifests'")
    return await ledger.page_of_occurrences(db, manifest, **page)


Filter = TypeVar("Filter", bound=Struct)


def narrowed(kind: type[Filter], asked: Struct, **read: Any) -> Filter:
    """A filter out of what was asked: the fields of one name, and those that had to be read."""
    same = set(kind.__struct_fields__) & set(asked.__struct_fields__)
    return kind(**{name: getattr(asked, name) for name in same} | read)


class Now(Struct, frozen=True, kw_only=True):
    """The time by the database, and since when who was heard is alive."""

    at: datetime
    heard_since: datetime


Read = Callable[[Connection, Any, Now, Paging], Awaitable[Any]]


def _list(
    name: str, path: str, tag: str, summary: str, asked: type[Struct], item: Any, read: Read
) -> Endpoint:
    async def answered(request: Request[Any, Any, Any], question: Any) -> Any:
        database: Database = request.app.state.database
        settings: ConsoleSettings = request.app.state.settings
        async with database.acquire() as connection:
            at = await DATABASE_CLOCK.now(connection)
            since = at - timedelta(seconds=settings.orphan_timeout_seconds)
            now = Now(at=at, heard_since=since)
            page = Paging(cursor=question.cursor, limit=question.limit)
            return await read(connection, question, now, page)

    route = Route(
        name=name,
        method="GET",
        path=path,
        role="viewer",
        tag=tag,
        summary=summary,
        question=asked,
        answer=Page[item],
    )
    return Endpoint(route=route, answered=answered)


async def _id_of(db: Connection, name: str | None, known: UUID | None) -> UUID | None:
    """The id of a manifest by its name; none that anything has if there is no such one."""
    if name is None:
        return known
    found = await manifests.find_id(db, name)
    return found or UUID(int=0)


def _label(given: str) -> tuple[str, str]:
    key, equals, value = given.partition("=")
    if not equals:
        raise InvalidRequest(f"label: {given!r} is no key=value")
    return key, value


LISTS: tuple[Endpoint, ...] = (
    _list(
        "list_manifests", "/manifests", MANIFESTS, "List manifests in the order of their ids.",
        ManifestsAsked, manifests.ManifestRow, _manifests,
    ),
    _list(
        "list_occurrences", "/manifests/{manifest}/occurrences", MANIFESTS,
        "What was decided about a manifest's times: what fired, what was skipped and why.",
        OccurrencesAsked, ledger.Occurrence, _occurrences,
    ),
    _list(
        "list_groups", "/groups", GROUPS, "List groups: limits, what is under way, what waits.",
        GroupsAsked, groups.GroupRow, _groups,
    ),
    _list(
        "list_apps", "/apps", DEFINITIONS,
        "List applications with the source that declares each.",
        ApplicationsAsked, applications.ApplicationRow, _applications,
    ),
    _list(
        "list_jobs", "/jobs", JOBS, "List declared jobs with the schema of their input.",
        JobsAsked, manifests.JobRow, _jobs,
    ),
    _list(
        "list_enqueued", "/enqueued", JOBS,
        "List enqueued work that is not queued, the oldest first.",
        EnqueuedAsked, EnqueuedStatus, _enqueued,
    ),
    _list(
        "list_work", "/work", WORK, "List work, the newest first.", WorkAsked, WorkStatus, _work
    ),
    _list(
        "list_runs", "/runs", WORK, "List runs, the newest first.", RunsAsked, runs.RunRow, _runs
    ),
    _list(
        "list_workers", "/workers", WORK, "List workers in the order of their names.",
        WorkersAsked, WorkerStatus, _workers,
    ),
    _list(
        "list_dead_letters", "/dead-letters", LETTERS, "List dead letters, the newest first.",
        LettersAsked, DeadLetterStatus, _letters,
    ),
    _list(
        "list_failures", "/failures", LETTERS, "List dead letters by what failed, latest first.",
        FailuresAsked, dead_letters.FailureGroup, _failures,
    ),
    _list(
        "list_events", "/events", SYSTEM, "List events of history, the newest first.",
        EventsAsked, events.EventRow, _events,
    ),
    _list(
        "list_audit", "/audit", SYSTEM, "List what was done and by whom, the newest first.",
        AuditAsked, audit.AuditEntry, _audit,
    ),
)  # fmt: skip
