"""Appending to history and reading it back."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries, json_array
from msgspec import Struct


class Record(Struct, frozen=True, kw_only=True):
    """One event, as history keeps it."""

    event_id: str
    type: str
    subject: str
    source: str
    occurred_at: datetime
    data: Any
    accepted: bool = True
    refusal: str | None = None
    run: UUID | None = None
    lease: UUID | None = None


class History:
    """The history of one schema."""

    def __init__(self, schema: str) -> None:
        self._queries = Queries("headway_history", "history.sql", schema=schema)

    async def append(
        self, connection: Connection, records: Sequence[Record], *, now: datetime
    ) -> None:
        """Write records down, in the transaction that decided about them."""
        if not records:
            return
        await connection.execute(
            self._queries["append"],
            [record.event_id for record in records],
            [record.type for record in records],
            [record.subject for record in records],
            [record.source for record in records],
            [record.occurred_at for record in records],
            json_array(record.data for record in records),
            [record.accepted for record in records],
            [record.refusal for record in records],
            [record.run for record in records],
            [record.lease for record in records],
            now,
        )

    async def replay(self, connection: Connection, run: UUID, lease: UUID) -> list[Record]:
        """What history knows of one run, oldest first."""
        rows = await connection.fetch(self._queries["replay"], run, lease)
        return [
            Record(
                event_id=row["event_id"],
                type=row["type"],
                subject=row["subject"],
                source=row["source"],
                occurred_at=row["occurred_at"],
                data=row["data"],
                accepted=row["accepted"],
                refusal=row["refusal"],
                run=row["run_id"],
                lease=row["lease_id"],
            )
            for row in rows
        ]
