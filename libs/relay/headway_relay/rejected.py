"""Stores messages that could not be handled."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from headway_contract import Event, Malformed, decode
from headway_jetstream_kit import Broker, BrokerUnavailable, Message, Puller
from headway_jetstream_kit.consume import Intake, Unreadable
from headway_postgres_kit import Database, DatabaseUnavailable, Queries, storable
from headway_service_kit.ignored_messages import count_ignored


class Rejected:
    """The rejected messages of one schema."""

    def __init__(self, schema: str) -> None:
        self.queries = Queries("headway_relay", "rejected.sql", schema=schema)

    def intake(
        self,
        database: Database,
        broker: Broker,
        puller: Puller,
        handle: Callable[[list[Message]], Awaitable[None]],
        *,
        warn: Callable[[Message, str], Awaitable[None]] | None = None,
    ) -> Intake:
        """Make an intake that stores rejected messages here and calls `warn` for each."""

        async def reject(message: Message, reason: str) -> None:
            if warn is not None:
                await warn(message, reason)
            await self.add(database, message, reason)

        return Intake(
            broker,
            puller,
            handle=handle,
            reject=reject,
            outages=(DatabaseUnavailable, BrokerUnavailable),
        )

    async def add(self, database: Database, message: Message, reason: str) -> None:
        """Store a message."""
        async with database.acquire() as connection:
            await connection.execute(
                self.queries["add"],
                storable(message.subject),
                {storable(key): storable(value) for key, value in message.headers.items()},
                message.body,
                storable(reason),
            )

    async def forget(self, database: Database, *, kept: timedelta, limit: int) -> int:
        """Delete old messages; return how many."""
        async with database.acquire() as connection:
            status = await connection.execute(self.queries["forget"], kept, limit)
        return int(status.rpartition(" ")[2])


def events_in(message: Message) -> list[Event]:
    """Return the events of known types; count and ignore the others."""
    try:
        events = decode(message.body)
    except Malformed as error:
        raise Unreadable(str(error)) from error
    known = [event for event in events if isinstance(event, Event)]
    count_ignored("events_of_unknown_type", len(events) - len(known))
    return known
