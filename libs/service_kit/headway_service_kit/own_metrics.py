"""Metrics that every service has: passes, connections and ignored messages."""

from headway_service_kit.metrics import Measure, counter, gauge, histogram


class OwnMeasures:
    """The common metrics of one service, prefixed with its name."""

    def __init__(self, service: str) -> None:
        prefix = f"headway_{service}"
        self.pass_seconds = histogram(
            f"{prefix}_pass_seconds",
            "Duration of successful passes; intake passes include the wait for messages.",
            "pass",
        )
        self.pass_failures = counter(
            f"{prefix}_pass_failures_total", "Failed passes, which are retried.", "pass"
        )
        self.pass_age = gauge(
            f"{prefix}_pass_age_seconds",
            "Time since the last successful pass. For `tick`: the age of the last tick.",
            "pass",
        )
        self.database_connections = gauge(
            f"{prefix}_database_connections", "Open connections to PostgreSQL."
        )
        self.database_connections_in_use = gauge(
            f"{prefix}_database_connections_in_use", "Connections to PostgreSQL that are in use."
        )
        self.nats_connected = gauge(f"{prefix}_nats_connected", "1 while connected to NATS.")
        self.nats_reconnects = counter(f"{prefix}_nats_reconnects_total", "Reconnects to NATS.")
        self.passed_over = counter(
            f"{prefix}_passed_over_total",
            "Messages and events that were ignored on purpose, by kind.",
            "what",
        )
        self.answers = gauge(
            f"{prefix}_metrics_source_up",
            "1 if the source of other metrics answered. The metrics of a source that does not "
            "answer, `database` or `nats`, are left out.",
            "source",
        )

    def all(self) -> list[Measure]:
        """List all of them."""
        return list(vars(self).values())
