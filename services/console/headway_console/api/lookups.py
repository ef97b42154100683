"""Single things and counts, which the console reads from the database itself."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from headway_contract import subjects
from headway_contract.dispatching import (
    DeadLetterAnswer,
    OccupancyAnswer,
    RunAnswer,
    WorkAnswer,
)
from headway_contract.operating import SettingsAnswer, SettingsQuestion
from headway_contract.routes import GROUPS, LETTERS, MANIFESTS, WORK, Route
from headway_contract.scheduling import ManifestAnswer
from headway_errors import NotFound
from headway_postgres_kit import Connection, Database
from litestar import Request
from msgspec import Struct

from headway_console.api.endpoints import Endpoint
from headway_console.api.requests import (
    LetterQuestion,
    ManifestQuestion,
    OccupancyQuestion,
    RunQuestion,
    WorkQuestion,
)
from headway_console.reading.dead_letters import read_letter
from headway_console.reading.groups import list_occupancy
from headway_console.reading.manifests import read_definition, why_missing
from headway_console.reading.run import read_run
from headway_console.reading.works import read_work
from headway_console.services import ask

# More lines than any run may keep.
_ALL_LINES = 1_000_000
_MAX_ACTIVE = "HEADWAY_MAX_ACTIVE"

Answer = TypeVar("Answer", bound=Struct)


async def _manifest(connection: Connection, question: ManifestQuestion) -> ManifestAnswer:
    found = await read_definition(connection, question.manifest)
    if found is None:
        raise NotFound(await why_missing(connection, question.manifest))
    return found


async def _work(connection: Connection, question: WorkQuestion) -> WorkAnswer:
    found = await read_work(connection, question.id)
    if found is None:
        raise NotFound(
            f"the dispatcher knows no work and no run {question.id}: it may still be on "
            "its way, or be forgotten; see 'headway work'"
        )
    newest_first = msgspec.structs.replace(found, runs=found.runs[::-1])
    return msgspec.convert(newest_first, WorkAnswer, from_attributes=True)


async def _run(connection: Connection, question: RunQuestion) -> RunAnswer:
    found = await read_run(connection, question.run, lines=_ALL_LINES)
    if found is None:
        raise NotFound(f"there is no run {question.run}: see 'headway runs'")
    answer = msgspec.convert(found, RunAnswer, from_attributes=True)
    progress = {"percent": found.status.percent, "message": found.status.message}
    return msgspec.structs.replace(answer, **progress)


async def _letter(connection: Connection, question: LetterQuestion) -> DeadLetterAnswer:
    found = await read_letter(connection, question.id)
    if found is None:
        raise NotFound(
            f"there is no dead letter {question.id}, and none of such work: "
            "see 'headway dead-letters list --state all'"
        )
    return found


async def _occupancy(
    request: Request[Any, Any, Any], question: OccupancyQuestion
) -> OccupancyAnswer:
    """Return what the groups run; the limit over all of them is a setting of the dispatcher."""
    async with request.app.state.database.acquire() as connection:
        groups = await list_occupancy(connection, question.group)
    if question.group is not None and not groups:
        raise NotFound(f"no work of a group {question.group!r} has come: see 'headway groups'")
    answer = await ask(
        request, subjects.DISPATCHER_SETTINGS_QUESTION, SettingsQuestion(), SettingsAnswer
    )
    limits = [setting.value for setting in answer.settings if setting.variable == _MAX_ACTIVE]
    return OccupancyAnswer(max_active=int(limits[0]), groups=groups)


def _reading(read: Callable[[Connection, Any], Awaitable[Answer]]) -> Any:
    """Return a handler that reads an answer from one snapshot of the database."""

    async def answered(request: Request[Any, Any, Any], question: Any) -> Answer:
        database: Database = request.app.state.database
        async with (
            database.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            return await read(connection, question)

    return answered


LOOKUPS: tuple[Endpoint, ...] = (
    Endpoint(
        route=Route(
            name="show_manifest", method="GET", path="/manifests/{manifest}", role="viewer",
            tag=MANIFESTS, summary="Show a manifest with its definition and operators' changes.",
            question=ManifestQuestion, answer=ManifestAnswer,
        ),
        answered=_reading(_manifest),
    ),
    Endpoint(
        route=Route(
            name="show_work", method="GET", path="/work/{id}", role="viewer", tag=WORK,
            summary="Show a piece of work with its runs, by its id or by that of a run.",
            question=WorkQuestion, answer=WorkAnswer,
        ),
        answered=_reading(_work),
    ),
    Endpoint(
        route=Route(
            name="show_run", method="GET", path="/runs/{run}", role="viewer", tag=WORK,
            summary="Show a run: input, output, failure, progress and log.",
            question=RunQuestion, answer=RunAnswer,
        ),
        answered=_reading(_run),
    ),
    Endpoint(
        route=Route(
            name="show_dead_letter", method="GET", path="/dead-letters/{id}", role="viewer",
            tag=LETTERS, summary="Show a dead letter, by its id or by that of its work.",
            question=LetterQuestion, answer=DeadLetterAnswer,
        ),
        answered=_reading(_letter),
    ),
    Endpoint(
        route=Route(
            name="occupancy", method="GET", path="/occupancy", role="viewer", tag=GROUPS,
            summary="Show what groups run, and what waits in them and why.",
            question=OccupancyQuestion, answer=OccupancyAnswer,
        ),
        answered=_occupancy,
    ),
)  # fmt: skip
