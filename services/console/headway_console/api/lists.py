"""Lists, which the console reads from the database itself."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway.control import NotThere
from headway_contract.dispatching import (
    DeadLetterStatus,
    LetterFilter,
    WorkerStatus,
    WorkStatus,
)
from headway_contract.http import InvalidRequest
from headway_contract.routes import (
    GROUPS,
    JOBS,
    LETTERS,
    MANIFESTS,
    SYSTEM,
    WORK,
    Route,
)
from headway_postgres_kit import DATABASE_CLOCK, Connection, Database
from litestar import Request
from msgspec import Struct

from headway_console.api.asked import (
    AuditAsked,
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
from headway_console.api.endpoints import Endpoint
from headway_console.reading import Page, audit, dead_letters, events, groups, manifests, runs
from headway_console.reading import occurrences as ledger
from headway_console.reading import workers as crew
from headway_console.reading import works as queue
from headway_console.settings import ConsoleSettings


async def _manifests(db: Connection, asked: ManifestsAsked, _: "Now") -> Any:
    wanted = manifests.ManifestFilter(
        text=asked.text,
        group=asked.group,
        job=asked.job,
        owner=asked.owner,
        labels=dict(_label(one) for one in asked.label),
        state=asked.state,
    )
    return await manifests.page_of_manifests(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _groups(db: Connection, asked: GroupsAsked, _: "Now") -> Any:
    return await groups.page_of_groups(db, name=asked.name, cursor=asked.cursor, limit=asked.limit)


async def _work(db: Connection, asked: WorkAsked, _: "Now") -> Any:
    wanted = queue.WorkFilter(
        state=asked.state,
        group=asked.group,
        job=asked.job,
        manifest=await _id_of(db, asked.manifest, asked.manifest_id),
        reason=asked.reason,
    )
    return await queue.page_of_works(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _runs(db: Connection, asked: RunsAsked, _: "Now") -> Any:
    if asked.work is not None:
        return await _runs_of_work(db, asked, asked.work)
    wanted = runs.RunFilter(
        state=asked.state,
        group=asked.group,
        job=asked.job,
        manifest=await _id_of(db, asked.manifest, asked.manifest_id),
        worker=asked.worker,
        since=asked.since,
        before=asked.before,
        text=asked.text,
        text_in=asked.text_in,
    )
    return await runs.page_of_runs(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _runs_of_work(db: Connection, asked: RunsAsked, work: UUID) -> Page[runs.RunRow]:
    """Those of one piece of work, which are few: all on one page, the newest first."""
    found = await queue.read_work(db, work)
    of_it = [] if found is None else reversed(found.runs)
    return Page(items=[one for one in of_it if asked.state in (None, one.state)])


async def _letters(db: Connection, asked: LettersAsked, _: "Now") -> Any:
    wanted = LetterFilter(**{name: getattr(asked, name) for name in LetterFilter.__struct_fields__})
    return await dead_letters.page_of_letters(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _failures(db: Connection, asked: FailuresAsked, _: "Now") -> Any:
    return await dead_letters.page_of_failures(
        db,
        state=asked.state,
        group=asked.group,
        job=asked.job,
        manifest=asked.manifest,
        cursor=asked.cursor,
        limit=asked.limit,
    )


async def _workers(db: Connection, asked: WorkersAsked, now: "Now") -> Any:
    return await crew.page_of_workers(
        db,
        heard_since=now.heard_since,
        alive_only=asked.alive_only,
        cursor=asked.cursor,
        limit=asked.limit,
    )


async def _jobs(db: Connection, asked: JobsAsked, now: "Now") -> Any:
    return await manifests.page_of_jobs(
        db,
        heard_since=now.heard_since,
        text=asked.text,
        cursor=asked.cursor,
        limit=asked.limit,
    )


async def _events(db: Connection, asked: EventsAsked, _: "Now") -> Any:
    wanted = events.EventFilter(
        types=asked.type,
        **{
            name: getattr(asked, name)
            for name in ("manifest", "group", "job", "work", "run", "accepted", "since", "before")
        },
    )
    return await events.page_of_events(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _audit(db: Connection, asked: AuditAsked, _: "Now") -> Any:
    wanted = audit.AuditFilter(
        actor=asked.actor,
        target=asked.target,
        actions=asked.action,
        people=asked.people,
        since=asked.since,
        before=asked.before,
    )
    return await audit.page_of_audit(db, wanted, cursor=asked.cursor, limit=asked.limit)


async def _occurrences(db: Connection, asked: OccurrencesAsked, _: "Now") -> Any:
    manifest = await manifests.find_id(db, asked.manifest)
    if manifest is None:
        raise NotThere(f"there is no manifest {asked.manifest!r}: see 'headway manifests'")
    return await ledger.page_of_occurrences(db, manifest, cursor=asked.cursor, limit=asked.limit)


class Now(Struct, frozen=True, kw_only=True):
    """The time by the database, and since when who was heard is alive."""

    at: datetime
    heard_since: datetime


Read = Callable[[Connection, Any, Now], Awaitable[Any]]


def _list(
    name: str, path: str, tag: str, summary: str, asked: type[Struct], item: Any, read: Read
) -> Endpoint:
    async def answered(request: Request[Any, Any, Any], question: Any) -> Any:
        database: Database = request.app.state.database
        settings: ConsoleSettings = request.app.state.settings
        async with database.acquire() as connection:
            at = await DATABASE_CLOCK.now(connection)
            since = at - timedelta(seconds=settings.orphan_timeout_seconds)
            return await read(connection, question, Now(at=at, heard_since=since))

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
        "list_jobs", "/jobs", JOBS, "List declared jobs with the schema of their input.",
        JobsAsked, manifests.JobRow, _jobs,
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
