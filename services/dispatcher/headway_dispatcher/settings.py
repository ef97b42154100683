"""Settings of the dispatcher."""

from typing import Literal

from msgspec import Struct


class DispatcherSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: str
    nats_url: str
    nats_creds: str | None = None
    health_address: str = "127.0.0.1:0"
    provision: Literal["auto", "manual"] = "manual"
    max_active: int = 100
    heartbeat_seconds: float = 3.0
    orphan_timeout_seconds: float = 60.0
    stale_pending_seconds: float = 1200.0
    stream_replicas: int = 1
    stream_max_bytes: int = 1024**3
    # How long the dispatcher knows settled work. Unknown work that is older may have been run
    # and forgotten, and is not run again.
    history_days: float = 30.0
