"""Sends several independent writes as one statement.

A round trip costs more than most writes. All parts see the tables as they were before the
statement.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from headway_postgres_kit.driver import Connection

_PARAMETER = re.compile(r"\$(\d+)")
_WITH = re.compile(r"WITH\s+", re.IGNORECASE)
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)


class StatementBatch:
    """Writes to send as one statement in an open transaction."""

    def __init__(self) -> None:
        self._statements: list[tuple[str, tuple[Any, ...]]] = []

    def add(self, query: str, *parameters: Any) -> None:
        """Append a write; only the first may begin with `WITH`."""
        self._statements.append((query, parameters))

    async def send(self, connection: Connection) -> None:
        """Send all writes and start an empty batch."""
        statements, self._statements = self._statements, []
        if statements:
            query = combine(tuple(query for query, _ in statements))
            await connection.execute(
                query, *(value for _, values in statements for value in values)
            )


@cache
def combine(queries: Sequence[str]) -> str:
    """Combine statements into one, with the parameters of all of them in a row."""
    first, *others = (_COMMENT.sub("", query).strip() for query in queries)
    taken = _highest(first)
    parts = []
    for number, query in enumerate(others, start=1):
        if _WITH.match(query):
            raise ValueError(f"only the first of several statements may begin with WITH: {query}")
        parts.append(f"part_{number} AS (\n{_renumbered(query, taken)}\n)")
        taken += _highest(query)
    if not parts:
        return first
    rest = _WITH.sub(",\n", first, count=1) if _WITH.match(first) else f"\n{first}"
    return "WITH " + ",\n".join(parts) + rest


def _highest(query: str) -> int:
    return max((int(number) for number in _PARAMETER.findall(query)), default=0)


def _renumbered(query: str, by: int) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", query)
