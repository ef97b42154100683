"""Settings of the dispatcher."""

from typing import Annotated, Literal

from headway_service_kit.settings import Above0, From1, ServiceSettings
from msgspec import Meta

# A message may have 1 MiB (max_payload), and the event stream is purged when it is half full.
LEAST_STREAM_BYTES = 4 * 1024**2


class DispatcherSettings(ServiceSettings, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    provision: Annotated[
        Literal["auto", "manual"],
        Meta(
            description="`auto`: create missing streams, also after a loss; `manual`: only report "
            "them. `headway up` uses `auto`."
        ),
    ] = "manual"
    max_active: Annotated[int, Meta(ge=0, description="Limit of slots in use, in total.")] = 100
    rank_step_seconds: Annotated[
        Above0,
        Meta(description="Ageing: one step of priority counts as this much age at the gate."),
    ] = 60.0
    gate_batch: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum work that one pass of the gate reads.")
    ] = 1000
    heartbeat_seconds: Annotated[
        Above0, Meta(description="Interval between heartbeats of a worker.")
    ] = 3.0
    orphan_timeout_seconds: Annotated[
        Above0,
        Meta(
            description="Silence of a worker after which its leases are revoked. Allow several "
            "heartbeats, so that a pause does not count as a crash."
        ),
    ] = 60.0
    stale_pending_seconds: Annotated[
        Above0,
        Meta(
            description="Time after which an unclaimed order is withdrawn, unless all workers that "
            "serve its job are full."
        ),
    ] = 1200.0
    history_days: Annotated[
        Above0,
        Meta(
            description="Retention of settled work, its runs, decisions, history and audit. The "
            "dispatcher does not run unknown work that is older."
        ),
    ] = 30.0
    dead_letter_days: Annotated[Above0, Meta(description="Retention of resolved dead letters.")] = (
        30.0
    )
    worker_days: Annotated[
        Above0, Meta(description="Time for which a crashed worker stays listed.")
    ] = 7.0
    rejected_days: Annotated[
        Above0, Meta(description="Retention of messages that could not be handled (`rejected`).")
    ] = 30.0
    clean_up_seconds: Annotated[Above0, Meta(description="Interval between clean-up passes.")] = (
        600.0
    )
    stream_replicas: Annotated[
        int, Meta(ge=1, le=5, description="Copies of each stream: 3 if NATS has three servers.")
    ] = 1
    stream_max_bytes: Annotated[
        int,
        Meta(
            ge=LEAST_STREAM_BYTES,
            description="Maximum size of a stream. `headway up` creates smaller ones. Below 4 MiB "
            "a stream could lack room for a message that NATS accepts (1 MiB).",
        ),
    ] = 1024**3
    stream_max_age_days: Annotated[
        float,
        Meta(
            ge=7,
            description="Maximum age of a message in a stream. With less than twice the longest "
            "timeout, the claim of a long run could expire.",
        ),
    ] = 7.0
    stream_ack_wait_seconds: Annotated[
        float,
        Meta(
            ge=30,
            description="Time after which an unacknowledged message is redelivered. A worker "
            "claims within 20 s.",
        ),
    ] = 30.0
    stream_max_ack_pending: Annotated[
        From1, Meta(description="Maximum unacknowledged messages of a consumer.")
    ] = 10_000

    @property
    def renew_seconds(self) -> float:
        """Interval for renewing a lease, so that its last message never expires."""
        return self.stream_max_age_days * 86_400 / 4
