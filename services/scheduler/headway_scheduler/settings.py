"""Settings of the scheduler."""

from typing import Annotated, Literal

from headway_service_kit.settings import SECRET, Above0, From1, ServiceSettings
from msgspec import Meta


class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    max_entries_per_cycle: Annotated[
        From1 | None,
        Meta(description="How many manifests one tick decides about; `none` for all that are due."),
    ] = 200
    prune: Annotated[
        Literal["delete", "disable", "keep"],
        Meta(description="What becomes of manifests that the application no longer declares."),
    ] = "delete"
    generation: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Which deployment of the application this is: a lower one than the last "
            "that declared changes nothing. Without it, what the application says."
        ),
    ] = None
    tick: Annotated[
        Literal["on", "off"], Meta(description="Off: declare and list, and never fire.")
    ] = "on"
    history_days: Annotated[
        Above0,
        Meta(
            description="How long settled work, its runs, decisions, history and audit are kept. "
            "The dispatcher does not run unknown work again that is older."
        ),
    ] = 30.0
    rejected_days: Annotated[
        Above0,
        Meta(description="How long messages are kept that could not be handled (`rejected`)."),
    ] = 30.0
    clean_up_seconds: Annotated[
        Above0, Meta(description="How often is looked for what is older than it need be.")
    ] = 600.0
    ask_after_seconds: Annotated[
        Above0,
        Meta(
            description="How old work must be before the dispatcher is asked what became of it. "
            "It is asked again after pauses that double up to an hour."
        ),
    ] = 60.0
    webhook_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://[^/\s]+\S*$")] | None,
        Meta(
            description="Where dead letters, missed fires and blocked manifests are told, as in "
            "`https://host/path`. Without it nothing is told; the same for all schedulers."
        ),
    ] = None
    webhook_secret: Annotated[
        str | None,
        Meta(
            description="By which notifications are signed, from `headway notify secret`; while "
            "it is replaced, several with spaces between them. Best in a file.",
            extra=SECRET,
        ),
    ] = None
    webhook_timeout_seconds: Annotated[
        float,
        Meta(gt=0, le=30, description="How long the webhook may take to answer a notification."),
    ] = 10.0
    webhook_retry_seconds: Annotated[
        Above0,
        Meta(
            description="How soon a notification that was not taken is sent again. The pause "
            "doubles up to an hour."
        ),
    ] = 5.0
    webhook_horizon_hours: Annotated[
        Above0,
        Meta(description="For how long a notification is sent again before it is given up."),
    ] = 24.0
    webhook_burst: Annotated[
        From1,
        Meta(
            description="How many new notifications of one type are sent one by one; more at once "
            "are told in a digest."
        ),
    ] = 20
    enqueue_batch: Annotated[
        int, Meta(ge=1, le=10_000, description="How much enqueued work is taken up at once.")
    ] = 500
    enqueue_poll_seconds: Annotated[
        Above0,
        Meta(description="How often is looked for work that applications have enqueued by SQL."),
    ] = 0.2
