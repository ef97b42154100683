"""Streams, subjects, consumers and headers. Nothing else spells a subject."""

from uuid import UUID

from headway_contract.names import check_name

# Scheduler to dispatcher. Work queue retention: an acknowledged message is freed.
WORK_STREAM = "HEADWAY_WORK"
WORK_SUBJECTS = "headway.work.*"
WORK_CONSUMER = "dispatcher"

# Orders to workers. One message a subject, so that an order is never stored twice.
RUNS_STREAM = "HEADWAY_RUNS"
RUNS_SUBJECTS = "headway.run.*.*"

# Lifecycle, from workers and from the dispatcher itself.
EVENTS_STREAM = "HEADWAY_EVENTS"
EVENTS_SUBJECTS = "headway.event.*.*"
EVENTS_CONSUMER = "projector"

# Outcomes, to the scheduler and anybody who cares.
SETTLED_STREAM = "HEADWAY_SETTLED"
SETTLED_SUBJECTS = "headway.settled.*"
SETTLED_CONSUMER = "scheduler"

# Core NATS, request and reply.
HEARTBEAT = "headway.heartbeat"
DISPATCHERS = "dispatchers"
LEASE_QUESTION = "headway.control.dispatcher.lease"
RECONCILE_QUESTION = "headway.control.dispatcher.reconcile"
SCHEDULERS = "schedulers"
SCHEDULER_CONTROL = "headway.control.scheduler"
MANIFESTS_QUESTION = f"{SCHEDULER_CONTROL}.manifests"
MANIFEST_QUESTION = f"{SCHEDULER_CONTROL}.manifest"
GROUPS_QUESTION = f"{SCHEDULER_CONTROL}.groups"
PREVIEW_QUESTION = f"{SCHEDULER_CONTROL}.preview"
EXPLAIN_QUESTION = f"{SCHEDULER_CONTROL}.explain"
LEDGER_QUESTION = f"{SCHEDULER_CONTROL}.ledger"
ACTIVATION_QUESTION = f"{SCHEDULER_CONTROL}.activation"
PLAN_QUESTION = f"{SCHEDULER_CONTROL}.plan"
APPLY_REQUEST = f"{SCHEDULER_CONTROL}.apply"
CHANGE_REQUEST = f"{SCHEDULER_CONTROL}.change"
CHANGE_GROUP_REQUEST = f"{SCHEDULER_CONTROL}.change_group"
TRIGGER_REQUEST = f"{SCHEDULER_CONTROL}.trigger"
DELETE_REQUEST = f"{SCHEDULER_CONTROL}.delete"

# The worker token under which the dispatcher publishes its own fenced events. Names of
# workers cannot start with an underscore, so no worker can be called this.
DISPATCHER = "_dispatcher"

MESSAGE_ID_HEADER = "Nats-Msg-Id"
EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT_HEADER = "Nats-Expected-Last-Subject-Sequence-Subject"
TRACEPARENT_HEADER = "traceparent"

# Answers of the broker that the protocol names.
WRONG_SEQUENCE = 10071
UNDECIDED_SEQUENCE = 10164
ORDER_ALREADY_STORED = 10077


def work(group: str) -> str:
    """Where the scheduler publishes work of a group."""
    return f"headway.work.{check_name('group', group)}"


def order(job: str, lease: UUID) -> str:
    """Where the order for one lease is stored."""
    return f"headway.run.{check_name('job', job)}.{lease}"


def job_and_lease(subject: str) -> tuple[str, UUID]:
    """Read off an order's subject which lease of which job it grants."""
    job, _, lease = subject.removeprefix("headway.run.").partition(".")
    return job, UUID(lease)


def orders_of(job: str) -> str:
    """The filter of a job's consumer."""
    return f"headway.run.{check_name('job', job)}.*"


def worker_consumer(job: str) -> str:
    """The durable consumer that all workers of a job share."""
    return f"worker-{check_name('job', job)}"


def event(lease: UUID, worker: str) -> str:
    """Where one worker publishes the events of one lease."""
    return (
        f"headway.event.{lease}.{worker if worker == DISPATCHER else check_name('worker', worker)}"
    )


def events_of(lease: UUID) -> str:
    """Every event of a lease, whoever published it: the scope of the fence."""
    return f"headway.event.{lease}.*"


def settled(group: str) -> str:
    """Where the dispatcher publishes outcomes of a group's work."""
    return f"headway.settled.{check_name('group', group)}"


def cancel(worker: str) -> str:
    """Where a worker listens for cancels that should not wait for its next heartbeat."""
    return f"headway.cancel.{check_name('worker', worker)}"


def fence(lease: UUID, expected_sequence: int) -> dict[str, str]:
    """The two headers that every fenced message carries.

    Both are needed: the first alone looks only at the publisher's own subject, and two
    workers could then each store an outcome.
    """
    return {
        EXPECTED_SEQUENCE_HEADER: str(expected_sequence),
        EXPECTED_SUBJECT_HEADER: events_of(lease),
    }


def lease_and_worker(subject: str) -> tuple[UUID, str]:
    """Read who published which lease's event off the subject, never off the body."""
    prefix, _, rest = subject.partition("headway.event.")
    token, _, worker = rest.partition(".")
    lease = UUID(token)
    # Another spelling of the same lease would lie outside its fence.
    if prefix or not worker or token != str(lease):
        raise ValueError(f"{subject!r} is not a subject of {EVENTS_STREAM}")
    return lease, worker
