"""Settings of the scheduler."""

from typing import Literal

from msgspec import Struct


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: str
    nats_url: str
    nats_creds: str | None = None
    # How long PostgreSQL may take for an answer before the connection is given up.
    database_answer_seconds: float = 30.0
    # How often NATS is asked for a sign of life: without three in a row the connection is made
    # anew, without nine the process ends.
    nats_ping_seconds: float = 3.0
    health_address: str = "127.0.0.1:0"
    # How many manifests one tick decides about; none for all that are due.
    max_entries_per_cycle: int | None = 200
    # What becomes of manifests that the application no longer declares.
    prune: Literal["delete", "disable", "keep"] = "delete"
    # Which deployment of the application this is; without it, what the application says.
    generation: int | None = None
    # Off: declare and list, and never tick.
    tick: Literal["on", "off"] = "on"
    # How long decisions and the audit are kept.
    history_days: float = 30.0
    # How old work must be before the dispatcher is asked what became of it. It is asked again
    # after pauses that double up to an hour.
    ask_after_seconds: float = 60.0
