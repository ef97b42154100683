"""Settings of the dispatcher."""

from typing import Annotated, Literal

from headway_service_kit.settings import Above0, From1, ServiceSettings
from msgspec import Meta

# A message may have 1 MiB (max_payload), and the stream of events is emptied when it is half full.
LEAST_STREAM_BYTES = 4 * 1024**2


class DispatcherSettings(ServiceSettings, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    provision: Annotated[
        Literal["auto", "manual"],
        Meta(
            description="Whether missing streams are made, also after a loss, or only named. "
            "`headway up` makes them."
        ),
    ] = "manual"
    max_active: Annotated[
        int,
        Meta(ge=0, description="How many runs may be active at once over all groups."),
    ] = 100
    rank_step_seconds: Annotated[
        Above0,
        Meta(
            description="Ageing: how much older one step of priority makes work look to the gate."
        ),
    ] = 60.0
    gate_batch: Annotated[
        int,
        Meta(ge=1, le=10_000, description="How much work one pass of the gate looks at."),
    ] = 200
    heartbeat_seconds: Annotated[
        Above0, Meta(description="How often a worker says that it lives, and what it holds.")
    ] = 3.0
    orphan_timeout_seconds: Annotated[
        Above0,
        Meta(
            description="How long a worker may be silent before its runs are taken away. "
            "Several heartbeats, or a pause looks like a death."
        ),
    ] = 60.0
    stale_pending_seconds: Annotated[
        Above0,
        Meta(
            description="How long an order may wait for a worker's claim before it is taken back, "
            "unless all workers that serve its job are full."
        ),
    ] = 1200.0
    history_days: Annotated[
        Above0,
        Meta(
            description="How long settled work, its runs, decisions, history and audit are kept. "
            "The dispatcher does not run unknown work again that is older."
        ),
    ] = 30.0
    dead_letter_days: Annotated[
        Above0, Meta(description="How long dead letters are kept that somebody has seen to.")
    ] = 30.0
    worker_days: Annotated[
        Above0,
        Meta(description="How long a worker is listed that was last heard of and said no goodbye."),
    ] = 7.0
    rejected_days: Annotated[
        Above0,
        Meta(description="How long messages are kept that could not be handled (`rejected`)."),
    ] = 30.0
    clean_up_seconds: Annotated[
        Above0, Meta(description="How often is looked for what is older than it need be.")
    ] = 600.0
    stream_replicas: Annotated[
        int,
        Meta(ge=1, le=5, description="Copies of each stream: 3 where NATS has three servers."),
    ] = 1
    stream_max_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_STREAM_BYTES,
            description="Largest size of a stream. `headway up` makes smaller ones. Below 4 MiB a "
            "stream could be too full for a message that NATS takes (1 MiB).",
        ),
    ] = 1024**3
    stream_max_age_days: Annotated[
        float,
        Meta(
            ge=7,
            description="How long a stream keeps a message. Less than twice the longest time-out "
            "would let the claim of a long run expire under it.",
        ),
    ] = 7.0
    stream_ack_wait_seconds: Annotated[
        float,
        Meta(
            ge=30,
            description="How long a message may be on somebody's hands before it is handed out "
            "again. A worker claims within 20 s.",
        ),
    ] = 30.0
    stream_max_ack_pending: Annotated[
        From1, Meta(description="How many messages of a consumer may be on somebody's hands.")
    ] = 10_000
