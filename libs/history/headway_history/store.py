"""Appends to history, reads it back, and follows it as it grows."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries, StatementBatch, json_array
from headway_postgres_kit.driver import Cursor
from msgspec import Struct

from headway_history.events import StoredEvent

# How long to wait for a missing number: longer than any transaction of ours takes. Most missing
# numbers were rolled back.
PATIENCE_SECONDS = 60.0
# The first reading of packed events sorts all of them.
_SORTING_SECONDS = 24 * 3600.0
_PARTS_AT_ONCE = 2000
# The parameters of a statement that appends, in order.
_COLUMNS = (
    *("event_id", "type", "subject", "source", "occurred_at", "data"),
    *("accepted", "refusal", "work_id", "run", "lease"),
)


class Record(Struct, frozen=True, kw_only=True):
    """An event to append; without `work`, the field `work` of its data says whose event it is."""

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
        """The work that the event belongs to, or `None`."""
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
        """Append records in the transaction that decides; `now` defaults to the server's time."""
        writes = StatementBatch()
        self.append_to(writes, records, now=now)
        await writes.send(connection)

    def append_to(
        self, writes: StatementBatch, records: Sequence[Record], *, now: datetime | None = None
    ) -> None:
        """Append records as part of a batch of statements."""
        if records:
            writes.add(self._queries["append"], *self.columns(records), now)

    @staticmethod
    def columns(records: Sequence[Record]) -> tuple[Any, ...]:
        """Return the parameters of a statement that appends the records."""
        return tuple(
            json_array(record.data for record in records)
            if name == "data"
            else [getattr(record, name) for record in records]
            for name in _COLUMNS
        )

    async def be_patient(self, connection: Connection) -> None:
        """Lift the limits of time for the statements of this transaction."""
        await connection.execute(self._queries["be_patient"])

    async def of_works(self, connection: Connection, above: UUID, up_to: UUID) -> list[StoredEvent]:
        """Read the accepted events of all work between two ids, the first excluded."""
        return await _read(connection, self._queries["of_works"], above, up_to)

    async def of_these_works(
        self, connection: Connection, works: Sequence[UUID], *, up_to: int
    ) -> list[StoredEvent]:
        """Read the accepted events of some work up to a number, and all of its snapshots."""
        return await _read(connection, self._queries["of_these_works"], works, up_to)

    async def packed(
        self,
        connection: Connection,
        works: Sequence[UUID] | None = None,
        *,
        up_to: int | None = None,
    ) -> "PackedEvents":
        """Open the packed events of some or all work, for as long as the transaction is open."""
        await self.be_patient(connection)
        return PackedEvents(await connection.cursor(self._queries["packed"], works, up_to))

    async def of_leases(self, connection: Connection, leases: Iterable[UUID]) -> list[StoredEvent]:
        """Read the accepted events of leases that belong to no single work, except packed ones."""
        ids = sorted(leases)
        return await _read(connection, self._queries["of_leases"], ids) if ids else []

    async def of_no_work(self, connection: Connection, types: Sequence[str]) -> list[StoredEvent]:
        """Read the accepted events of some types that concern manifests, or history itself."""
        return await _read(connection, self._queries["of_no_work"], types)


class PackedEvents:
    """A stream of the parts of packed events in the order of their work.

    There is no index from work to its packed events. PostgreSQL expands and sorts them once for all
    pages of work.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._parts: list[StoredEvent] = []
        self._ended = False

    async def up_to(self, work: UUID) -> list[StoredEvent]:
        """Read the next parts, of all work up to an id."""
        parts, of_work = self._parts, attrgetter("work")
        while not self._ended and (not parts or of_work(parts[-1]) <= work):
            rows = await self._cursor.fetch(_PARTS_AT_ONCE, timeout=_SORTING_SECONDS)
            self._ended = len(rows) < _PARTS_AT_ONCE
            parts += [StoredEvent(*row) for row in rows]
        end = bisect_right(parts, work, key=of_work)
        self._parts = parts[end:]
        return parts[:end]


class Numbers:
    """The event numbers that a reader has seen; a lower one may be committed after a higher one."""

    def __init__(self, after: int) -> None:
        self.settled = after
        self._seen: set[int] = set()
        self._missed_since: dict[int, float] = {}

    @property
    def highest(self) -> int:
        """The highest number that was seen."""
        return max(self._seen, default=self.settled)

    def news(self, visible: Iterable[int], now: float) -> list[int]:
        """Return the numbers that are new; gaps are given up after `PATIENCE_SECONDS`."""
        new = [number for number in visible if number > self.settled and number not in self._seen]
        self._seen.update(new)
        while self._seen:
            following = self.settled + 1
            if following in self._seen:
                self._seen.discard(following)
            elif now - self._missed_since.setdefault(following, now) < PATIENCE_SECONDS:
                break
            self._missed_since.pop(following, None)
            self.settled = following
        return new


async def _read(connection: Connection, query: str, *args: Any) -> list[StoredEvent]:
    rows = await connection.fetch(query, *args)
    return [StoredEvent(*row) for row in rows]
