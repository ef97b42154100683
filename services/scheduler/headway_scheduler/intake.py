"""The intake: hear how work ended, and move its manifest on."""

from contextlib import ExitStack

from headway_contract import Event, Malformed, decode, subjects
from headway_contract.settled import WorkSettled
from headway_jetstream_kit import Broker, BrokerUnavailable, Message, Puller
from headway_jetstream_kit.consuming import Intake, Unreadable
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_tracing import span

from headway_scheduler import store


def settled_intake(database: Database, broker: Broker) -> Intake:
    """The intake of outcomes."""

    async def handle(messages: list[Message]) -> None:
        outcomes = [outcome for message in messages for outcome in _outcomes(message)]
        if not outcomes:
            return
        with ExitStack() as traces:
            for outcome in outcomes:
                traces.enter_context(
                    span("settle", parent=outcome.traceparent, outcome=outcome.data.outcome)
                )
            async with database.transaction() as connection:
                await store.settle(connection, [outcome.data for outcome in outcomes])

    async def reject(message: Message, reason: str) -> None:
        await store.reject(database, message, reason)

    return Intake(
        broker,
        Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER),
        handle=handle,
        reject=reject,
        outages=(DatabaseUnavailable, BrokerUnavailable),
    )


def _outcomes(message: Message) -> list[Event]:
    """The outcomes in a message; other events are for others."""
    try:
        events = decode(message.body)
    except Malformed as error:
        raise Unreadable(str(error)) from error
    return [one for one in events if isinstance(one, Event) and isinstance(one.data, WorkSettled)]
