"""Settings of the scheduler."""

from typing import Annotated, Literal

from headway_service_kit.settings import SECRET, Above0, From1, ServiceSettings
from msgspec import Meta


class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    max_entries_per_cycle: Annotated[
        From1 | None,
        Meta(
            description="Manifests that one tick decides about; `none` for all that are due. A "
            "long backlog of a single group is decided in longer cycles, of up to 2,500."
        ),
    ] = 200
    prune: Annotated[
        Literal["delete", "disable", "keep"],
        Meta(description="Policy for manifests that the application no longer declares."),
    ] = "delete"
    generation: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Number of the deployment; a number below the stored one changes nothing. "
            "The default is the generation that the application states."
        ),
    ] = None
    tick: Annotated[
        Literal["on", "off"], Meta(description="Off: declare and answer requests, but never fire.")
    ] = "on"
    history_days: Annotated[
        Above0,
        Meta(
            description="Retention of settled work, its runs, decisions, history and audit. The "
            "dispatcher does not run older work that it does not know."
        ),
    ] = 30.0
    rejected_days: Annotated[
        Above0, Meta(description="Retention of messages that could not be handled (`rejected`).")
    ] = 30.0
    clean_up_seconds: Annotated[Above0, Meta(description="Interval between clean-up passes.")] = (
        600.0
    )
    ask_after_seconds: Annotated[
        Above0,
        Meta(
            description="Age at which work is reconciled with the dispatcher; then again after "
            "pauses that double up to an hour."
        ),
    ] = 60.0
    webhook_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://[^/\s]+\S*$")] | None,
        Meta(
            description="URL that receives notifications of dead letters, missed fires and "
            "blocked manifests, such as `https://host/path`. The same for all schedulers."
        ),
    ] = None
    webhook_secret: Annotated[
        str | None,
        Meta(
            description="Secret that signs notifications, from `headway notify secret`; several "
            "separated by spaces while it is replaced. Best in a file.",
            extra=SECRET,
        ),
    ] = None
    webhook_timeout_seconds: Annotated[
        float, Meta(gt=0, le=30, description="Timeout of a request to the webhook.")
    ] = 10.0
    webhook_retry_seconds: Annotated[
        Above0,
        Meta(
            description="Pause before a notification that was not accepted is sent again. It "
            "doubles up to an hour."
        ),
    ] = 5.0
    webhook_horizon_hours: Annotated[
        Above0,
        Meta(description="Time after which a notification that is not accepted is given up."),
    ] = 24.0
    webhook_burst: Annotated[
        From1,
        Meta(
            description="New notifications of one type that are sent one by one; more are sent "
            "as a digest."
        ),
    ] = 20
    enqueue_batch: Annotated[
        int, Meta(ge=1, le=10_000, description="Maximum enqueued work that one pass queues.")
    ] = 500
    enqueue_poll_seconds: Annotated[
        Above0,
        Meta(description="Interval of polling for work that applications enqueued with SQL."),
    ] = 0.2
