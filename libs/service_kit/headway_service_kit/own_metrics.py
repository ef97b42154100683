"""What every service measures of itself: its passes, its connections, what it passed over."""

from collections.abc import Sequence

from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from msgspec import Struct

from headway_service_kit.after_commit import Counts
from headway_service_kit.metrics import Labels, Measure, Readings, counter, gauge, histogram


class OwnMeasures(Struct, frozen=True, kw_only=True):
    """The measures of one service, under its name."""

    pass_seconds: Measure
    pass_failures: Measure
    pass_age: Measure
    database_connections: Measure
    database_connections_in_use: Measure
    nats_connected: Measure
    nats_reconnects: Measure
    passed_over: Measure
    answers: Measure

    def all(self) -> list[Measure]:
        """All of them but the last, which a meter keeps by itself."""
        return [getattr(self, name) for name in self.__struct_fields__ if name != "answers"]


def own_measures(service: str) -> OwnMeasures:
    """What a service measures of itself."""
    prefix = f"headway_{service}"
    return OwnMeasures(
        pass_seconds=histogram(
            f"{prefix}_pass_seconds",
            "How long a pass took that went well; those that take messages in wait for them.",
            "pass",
        ),
        pass_failures=counter(
            f"{prefix}_pass_failures_total", "Passes that failed and are tried again.", "pass"
        ),
        pass_age=gauge(
            f"{prefix}_pass_age_seconds",
            "How long ago a pass last went well. Of the tick: the age of the last tick.",
            "pass",
        ),
        database_connections=gauge(
            f"{prefix}_database_connections", "Open connections to PostgreSQL."
        ),
        database_connections_in_use=gauge(
            f"{prefix}_database_connections_in_use", "Connections to PostgreSQL that are in use."
        ),
        nats_connected=gauge(f"{prefix}_nats_connected", "1 while connected to NATS."),
        nats_reconnects=counter(
            f"{prefix}_nats_reconnects_total", "How often NATS was connected to again."
        ),
        passed_over=counter(
            f"{prefix}_passed_over_total",
            "Messages and events that were passed over on purpose, by what they were.",
            "what",
        ),
        answers=gauge(
            f"{prefix}_metrics_source_up",
            "1 if the source of other metrics answered: without `database` or `nats`, those that "
            "are asked for there are left out.",
            "source",
        ),
    )


def read_connections(
    own: OwnMeasures, pools: Sequence[Database], broker: Broker, counts: Counts
) -> Readings:
    """Measure the connections of a service, and its counts."""
    alone: Labels = ()
    return {
        own.database_connections: {alone: sum(pool.connections for pool in pools)},
        own.database_connections_in_use: {alone: sum(pool.connections_in_use for pool in pools)},
        own.nats_connected: {alone: float(broker.client.is_connected)},
        own.nats_reconnects: {alone: broker.reconnects},
        own.passed_over: {(name,): number for name, number in counts.read().items()},
    }
