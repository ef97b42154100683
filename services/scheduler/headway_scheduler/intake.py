"""The intake: hear how work ended, and move its manifest on."""

from contextlib import ExitStack

from headway_contract import subjects
from headway_contract.settled import WorkSettled
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consuming import Intake
from headway_postgres_kit import Database
from headway_relay import events_in
from headway_tracing import span

from headway_scheduler import store
from headway_scheduler.store import REJECTED


def settled_intake(database: Database, broker: Broker) -> Intake:
    """The intake of outcomes; other events on their stream are for others."""

    async def handle(messages: list[Message]) -> None:
        told = [one for message in messages for one in events_in(message)]
        outcomes = [one for one in told if isinstance(one.data, WorkSettled)]
        if not outcomes:
            return
        with ExitStack() as traces:
            for one in outcomes:
                traces.enter_context(
                    span("settle", parent=one.traceparent, outcome=one.data.outcome)
                )
            async with database.transaction() as connection:
                await store.settle(connection, [one.data for one in outcomes])

    puller = Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)
