"""Who asks, as the console sees them."""

from typing import Any

from headway_contract.routes import SYSTEM, Role, Route
from litestar import Request
from msgspec import Struct

from headway_console.access.roles import Person
from headway_console.api.endpoints import Endpoint


class WhoQuestion(Struct, frozen=True, kw_only=True):
    """Who am I?"""


class WhoAnswer(Struct, frozen=True, kw_only=True):
    """Your name in the audit, your role, and how you came in."""

    name: str
    role: Role | None
    by: str


async def _answer(request: Request[Any, Any, Any], _: WhoQuestion) -> WhoAnswer:
    person: Person = request.user
    return WhoAnswer(name=person.name, role=person.role, by=person.by)


WHOAMI = Endpoint(
    route=Route(
        name="who_am_i",
        method="GET",
        path="/me",
        role="viewer",
        tag=SYSTEM,
        summary="Who you are, and what you may do.",
        question=WhoQuestion,
        answer=WhoAnswer,
    ),
    answered=_answer,
)
