"""Canaries: dead letters of one failure, retried in steps."""

from typing import Any
from uuid import UUID

import msgspec
from headway_contract.dead_letters import CanaryStatus
from headway_postgres_kit import Connection, Queries

queries = Queries("headway_console.reading", "sql/canaries.sql")


async def read_canary(connection: Connection, canary: UUID) -> CanaryStatus | None:
    """Return one canary, or `None` if there is none with this id."""
    return _status(await connection.fetchrow(queries["canary"], canary))


async def latest_canary(connection: Connection, fingerprint: str) -> CanaryStatus | None:
    """Return the latest canary of a failure, or `None`."""
    return _status(await connection.fetchrow(queries["latest"], fingerprint))


def _status(row: Any) -> CanaryStatus | None:
    return None if row is None else msgspec.convert(dict(row), CanaryStatus)
