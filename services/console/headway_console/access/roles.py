"""People and programs that come in."""

from typing import Literal

from headway_contract.routes import ROLES, Role
from msgspec import Struct

# For what everybody may have: the sign-in page and its style sheet.
ANYONE = "anyone"


class Person(Struct, frozen=True, kw_only=True):
    """Who asks. The audit calls them by their name.

    Without a role they are known, and may do nothing. `session` is theirs if they came by cookie.
    """

    name: str
    role: Role | None
    by: Literal["token", "oidc"]
    session: str = ""


def may(person: Person, needed: Role) -> bool:
    """Whether somebody's role is enough."""
    return person.role is not None and ROLES.index(person.role) >= ROLES.index(needed)
