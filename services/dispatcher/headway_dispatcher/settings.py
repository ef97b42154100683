"""Settings of the dispatcher."""

from typing import Literal

from msgspec import Struct


class DispatcherSettings(Struct, frozen=True, kw_only=True):
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
    provision: Literal["auto", "manual"] = "manual"
    max_active: int = 100
    # How much older one step of an entry's priority makes work look to the gate.
    rank_step_seconds: float = 60.0
    heartbeat_seconds: float = 3.0
    orphan_timeout_seconds: float = 60.0
    stale_pending_seconds: float = 1200.0
    # How long settled work, its runs and history are kept. Unknown work that is older may have
    # been run and forgotten, and is not run again.
    history_days: float = 30.0
    stream_replicas: int = 1
    stream_max_bytes: int = 1024**3
    # How long dead letters are kept that somebody has seen to.
    dead_letter_days: float = 30.0
