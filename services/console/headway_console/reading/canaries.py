"""How far a canary got, by what the dispatcher keeps of its retries.

Each retry of a canary has a key that names the canary and the step, and the dispatcher keeps what
it answered to a key for a week.
"""

from datetime import datetime
from uuid import UUID

import msgspec
from headway_contract.dispatching import LettersChanged
from headway_decisions.retries import fingerprints
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/canaries.sql")


class Stage(Struct, frozen=True, kw_only=True):
    """One retry of a canary: in which step, and what became of it."""

    step: int
    answer: LettersChanged
    at: datetime


class Begun(Struct, frozen=True, kw_only=True):
    """Of which failure a canary is, and who began it."""

    fingerprint: str
    actor: str


def key_of(canary: UUID, step: int, number: int) -> str:
    """The key of a canary's retry; `number` counts all of them."""
    return f"{_prefix(canary)}{step}:{number}"


async def read_stages(connection: Connection, canary: UUID) -> list[Stage]:
    """The retries of a canary, the first of them first."""
    rows = await connection.fetch(queries["stages"], _prefix(canary))
    return [
        Stage(
            step=int(row["key"].split(":")[2]),
            answer=msgspec.json.decode(row["answer"], type=LettersChanged),
            at=row["answered_at"],
        )
        for row in rows
    ]


async def read_begun(connection: Connection, letter: UUID) -> Begun:
    """Whose canary has retried a letter; a letter that is gone tells nothing."""
    row = await connection.fetchrow(queries["begun"], letter)
    if row is None:
        return Begun(fingerprint="", actor="")
    shown = fingerprints.shown(row["fingerprint"], row["code_version"])
    return Begun(fingerprint=shown, actor=row["actor"])


def _prefix(canary: UUID) -> str:
    return f"canary:{canary}:"
