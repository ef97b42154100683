"""How things stand, in one answer: what the first page shows."""

from datetime import timedelta
from typing import Any

from headway_contract.routes import SYSTEM, Route
from headway_postgres_kit import DATABASE_CLOCK, Database
from litestar import Request
from msgspec import Struct

from headway_console.api.endpoints import Endpoint
from headway_console.reading.overview import Overview, read_overview
from headway_console.settings import ConsoleSettings


class OverviewQuestion(Struct, frozen=True, kw_only=True):
    """How do things stand?"""


async def _answer(request: Request[Any, Any, Any], _: OverviewQuestion) -> Overview:
    database: Database = request.app.state.database
    settings: ConsoleSettings = request.app.state.settings
    async with database.acquire() as connection:
        now = await DATABASE_CLOCK.now(connection)
        since = now - timedelta(seconds=settings.orphan_timeout_seconds)
        return await read_overview(connection, now=now, heard_since=since)


OVERVIEW = Endpoint(
    route=Route(
        name="overview",
        method="GET",
        path="/overview",
        role="viewer",
        tag=SYSTEM,
        summary="How things stand: passes, throughput, groups, what is due next, what failed.",
        question=OverviewQuestion,
        answer=Overview,
    ),
    answered=_answer,
)
