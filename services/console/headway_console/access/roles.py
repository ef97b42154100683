"""People and programs, and their roles."""

from typing import Literal

from headway_contract.http import ROLES, Role
from msgspec import Struct


class Person(Struct, frozen=True, kw_only=True):
    """An authenticated person or program; `session` is set if they sent a session cookie."""

    name: str
    role: Role | None
    by: Literal["token", "oidc"]
    session: str = ""


def may(person: Person, needed: Role) -> bool:
    """Tell whether the role of a person suffices."""
    return person.role is not None and ROLES.index(person.role) >= ROLES.index(needed)
