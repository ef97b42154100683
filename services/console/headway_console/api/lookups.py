"""Single things and counts, read from the database, and the person who asks."""

from datetime import datetime
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.dead_letters import CanaryStatus, DeadLetterAnswer
from headway_contract.fields import ManifestId, Name
from headway_contract.http import Role
from headway_contract.manifests import ManifestAnswer
from headway_contract.operations import OccupancyAnswer, SettingsAnswer, SettingsQuestion
from headway_contract.work_queue import RunAnswer, WorkAnswer
from headway_errors import NotFound
from headway_postgres_kit import DATABASE_CLOCK, Connection
from msgspec import Struct

from headway_console.access.roles import Person
from headway_console.api.endpoints import (
    GROUPS,
    LETTERS,
    MANIFESTS,
    SYSTEM,
    WORK,
    Endpoint,
    endpoint,
)
from headway_console.reading.canaries import read_canary
from headway_console.reading.dead_letters import read_letter
from headway_console.reading.groups import list_occupancy
from headway_console.reading.manifests import read_definition, why_missing
from headway_console.reading.overview import Overview, read_overview
from headway_console.reading.run import read_run
from headway_console.reading.works import read_work
from headway_console.services import HttpRequest, ask

# More lines than a run can keep.
_ALL_LINES = 1_000_000
_MAX_ACTIVE = "HEADWAY_MAX_ACTIVE"


class WhoAnswer(Struct, frozen=True, kw_only=True):
    """Your name in the audit, your role, and how you signed in."""

    name: str
    role: Role | None
    by: str


@endpoint("GET", "/manifests/{manifest}", MANIFESTS)
async def show_manifest(connection: Connection, manifest: ManifestId) -> ManifestAnswer:
    """Show a manifest with its definition and operators' changes."""
    found = await read_definition(connection, manifest)
    if found is None:
        raise NotFound(await why_missing(connection, manifest))
    return found


@endpoint("GET", "/work/{id}", WORK)
async def show_work(connection: Connection, id: UUID) -> WorkAnswer:  # noqa: A002
    """Show a piece of work with its runs, by its id or by that of a run."""
    found = await read_work(connection, id)
    if found is None:
        raise NotFound(
            f"the dispatcher knows no work or run {id}: it may not have arrived, or be pruned; "
            "see 'headway work'"
        )
    newest_first = msgspec.structs.replace(found, runs=found.runs[::-1])
    return msgspec.convert(newest_first, WorkAnswer, from_attributes=True)


@endpoint("GET", "/runs/{run}", WORK)
async def show_run(connection: Connection, run: UUID) -> RunAnswer:
    """Show a run: input, output, failure, progress and log."""
    found = await read_run(connection, run, lines=_ALL_LINES)
    if found is None:
        raise NotFound(f"there is no run {run}: see 'headway runs'")
    answer = msgspec.convert(found, RunAnswer, from_attributes=True)
    progress = {"percent": found.status.percent, "message": found.status.message}
    return msgspec.structs.replace(answer, **progress)


@endpoint("GET", "/dead-letters/{id}", LETTERS)
async def show_dead_letter(connection: Connection, id: UUID) -> DeadLetterAnswer:  # noqa: A002
    """Show a dead letter, by its id or by that of its work."""
    found = await read_letter(connection, id)
    if found is None:
        raise NotFound(
            f"there is no dead letter {id}, and no dead letter of work {id}: "
            "see 'headway dead-letters list --state all'"
        )
    return found


@endpoint("GET", "/dead-letters/canaries/{canary}", LETTERS)
async def show_canary(connection: Connection, canary: UUID) -> CanaryStatus:
    """Show the progress of a canary."""
    found = await read_canary(connection, canary)
    if found is None:
        raise NotFound(f"there is no canary {canary}")
    return found


@endpoint("GET", "/occupancy", GROUPS)
async def occupancy(request: HttpRequest, group: Name | None = None) -> OccupancyAnswer:
    """Show active runs and waiting work of groups, with wait reasons."""
    async with request.app.state.database.acquire() as connection:
        groups = await list_occupancy(connection, group)
    if group is not None and not groups:
        raise NotFound(f"the group {group!r} has no work: see 'headway groups'")
    answer = await ask(
        request, subjects.DISPATCHER_SETTINGS_QUESTION, SettingsQuestion(), SettingsAnswer
    )
    limits = [setting.value for setting in answer.settings if setting.variable == _MAX_ACTIVE]
    return OccupancyAnswer(max_active=int(limits[0]), groups=groups)


@endpoint("GET", "/overview", SYSTEM)
async def overview(connection: Connection, heard_since: datetime) -> Overview:
    """Show health, throughput, groups, next fires and failures."""
    now = await DATABASE_CLOCK.now(connection)
    return await read_overview(connection, now=now, heard_since=heard_since)


@endpoint("GET", "/me", SYSTEM)
async def who_am_i(request: HttpRequest) -> WhoAnswer:
    """Show your name and your role."""
    person: Person = request.user
    return WhoAnswer(name=person.name, role=person.role, by=person.by)


LOOKUPS: tuple[Endpoint, ...] = (
    *(show_manifest, show_work, show_run, show_dead_letter, show_canary),
    *(occupancy, overview, who_am_i),
)
