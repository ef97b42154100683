"""Appending to history and reading it back."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries, StatementBatch, json_array
from msgspec import Struct

from headway_history.retained import Kept


class Record(Struct, frozen=True, kw_only=True):
    """One event, as history keeps it.

    `work` says whose event it is; where it is not given, what the data says counts.
    """

    event_id: str
    type: str
    subject: str
    source: str
    occurred_at: datetime
    data: Any
    accepted: bool = True
    refusal: str | None = None
    work: UUID | None = None
    run: UUID | None = None
    lease: UUID | None = None

    @property
    def work_id(self) -> UUID | None:
        """The work that the event belongs to."""
        if self.work is not None:
            return self.work
        named = self.data.get("work") if isinstance(self.data, dict) else None
        return UUID(named) if isinstance(named, str) else named


class History:
    """The history of one schema."""

    def __init__(self, schema: str) -> None:
        self._queries = Queries("headway_history", "history.sql", schema=schema)

    async def append(
        self, connection: Connection, records: Sequence[Record], *, now: datetime | None = None
    ) -> None:
        """Write records down, in the transaction that decided about them.

        `now` is our own time, as opposed to that of the events; without it the server's is taken.
        """
        writes = StatementBatch()
        self.append_to(writes, records, now=now)
        await writes.send(connection)

    def append_to(
        self, writes: StatementBatch, records: Sequence[Record], *, now: datetime | None = None
    ) -> None:
        """Write records down together with what else is written."""
        if records:
            writes.add(self._queries["append"], *self.columns(records), now)

    @staticmethod
    def columns(records: Sequence[Record]) -> tuple[Any, ...]:
        """Records as the parameters of a statement that appends them: `append`, or a wider one."""
        return (
            [record.event_id for record in records],
            [record.type for record in records],
            [record.subject for record in records],
            [record.source for record in records],
            [record.occurred_at for record in records],
            json_array(record.data for record in records),
            [record.accepted for record in records],
            [record.refusal for record in records],
            [record.work_id for record in records],
            [record.run for record in records],
            [record.lease for record in records],
        )

    async def of_works(self, connection: Connection, above: UUID, up_to: UUID) -> list[Kept]:
        """The accepted events of all work between two ids, the first one excluded."""
        rows = await connection.fetch(self._queries["of_works"], above, up_to)
        return [Kept.read(row) for row in rows]

    async def of_these_works(self, connection: Connection, works: Sequence[UUID]) -> list[Kept]:
        """The accepted events of some work."""
        rows = await connection.fetch(self._queries["of_these_works"], works)
        return [Kept.read(row) for row in rows]

    async def of_leases(self, connection: Connection, leases: Iterable[UUID]) -> list[Kept]:
        """The accepted events of leases that no single work has to itself."""
        asked = sorted(leases)
        if not asked:
            return []
        rows = await connection.fetch(self._queries["of_leases"], asked)
        return [Kept.read(row) for row in rows]

    async def of_no_work(self, connection: Connection, types: Sequence[str]) -> list[Kept]:
        """The accepted events of some types that concern manifests, or history itself."""
        rows = await connection.fetch(self._queries["of_no_work"], types)
        return [Kept.read(row) for row in rows]
