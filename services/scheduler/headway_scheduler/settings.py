"""Settings of the scheduler."""

from msgspec import Struct


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: str
    nats_url: str
    nats_creds: str | None = None
    health_address: str = "127.0.0.1:0"
    max_entries_per_cycle: int = 200
