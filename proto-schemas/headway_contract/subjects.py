"""Streams, subjects, consumers and headers. No other module spells a subject."""

from uuid import UUID

from headway_contract.fields import check_name

# Scheduler to dispatcher, with work queue retention.
WORK_STREAM = "HEADWAY_WORK"
WORK_SUBJECTS = "headway.work.*"
WORK_CONSUMER = "dispatcher"

# Orders to workers, one message per subject, so that an order is never stored twice.
RUNS_STREAM = "HEADWAY_RUNS"
RUNS_SUBJECTS = "headway.run.*.*"
_WORKER_CONSUMER = "worker-"

# Lifecycle, from workers and from the dispatcher itself.
EVENTS_STREAM = "HEADWAY_EVENTS"
EVENTS_SUBJECTS = "headway.event.*.*"
EVENTS_CONSUMER = "projector"

# Outcomes, to the scheduler and other subscribers.
SETTLED_STREAM = "HEADWAY_SETTLED"
SETTLED_SUBJECTS = "headway.settled.*"
SETTLED_CONSUMER = "scheduler"

# Core NATS, one way: progress and log lines. They may be lost.
PROGRESS_SUBJECTS = "headway.progress.*.*"

# Core NATS, request and reply.
HEARTBEAT = "headway.heartbeat"
# The dispatchers' own heartbeats; workers may not publish here.
WITNESS = "headway.witness"
DISPATCHERS = "dispatchers"
DISPATCHER_CONTROL = "headway.control.dispatcher"
LEASE_QUESTION = f"{DISPATCHER_CONTROL}.lease"
RECONCILE_QUESTION = f"{DISPATCHER_CONTROL}.reconcile"
RETRY_REQUEST = f"{DISPATCHER_CONTROL}.retry"
ACKNOWLEDGE_REQUEST = f"{DISPATCHER_CONTROL}.acknowledge"
BEGIN_CANARY_REQUEST = f"{DISPATCHER_CONTROL}.begin_canary"
STOP_CANARY_REQUEST = f"{DISPATCHER_CONTROL}.stop_canary"
CANCEL_REQUEST = f"{DISPATCHER_CONTROL}.cancel"
DRAIN_REQUEST = f"{DISPATCHER_CONTROL}.drain"
DISPATCHER_SETTINGS_QUESTION = f"{DISPATCHER_CONTROL}.settings"
EXPLAIN_WORK_QUESTION = f"{DISPATCHER_CONTROL}.explain_work"
SCHEDULERS = "schedulers"
SCHEDULER_CONTROL = "headway.control.scheduler"
PREVIEW_QUESTION = f"{SCHEDULER_CONTROL}.preview"
EXPLAIN_QUESTION = f"{SCHEDULER_CONTROL}.explain"
LEDGER_QUESTION = f"{SCHEDULER_CONTROL}.ledger"
ACTIVATION_QUESTION = f"{SCHEDULER_CONTROL}.activation"
PLAN_QUESTION = f"{SCHEDULER_CONTROL}.plan"
APPLY_REQUEST = f"{SCHEDULER_CONTROL}.apply"
CHANGE_REQUEST = f"{SCHEDULER_CONTROL}.change"
CHANGE_MANY_REQUEST = f"{SCHEDULER_CONTROL}.change_many"
NOTIFY_TEST_REQUEST = f"{SCHEDULER_CONTROL}.notify_test"
SCHEDULER_SETTINGS_QUESTION = f"{SCHEDULER_CONTROL}.settings"
PAUSE_REQUEST = f"{SCHEDULER_CONTROL}.pause"
RESUME_REQUEST = f"{SCHEDULER_CONTROL}.resume"
CHANGE_GROUP_REQUEST = f"{SCHEDULER_CONTROL}.change_group"
CHANGE_JOB_REQUEST = f"{SCHEDULER_CONTROL}.change_job"
TRIGGER_REQUEST = f"{SCHEDULER_CONTROL}.trigger"
BACKFILL_REQUEST = f"{SCHEDULER_CONTROL}.backfill"
RENAME_APP_REQUEST = f"{SCHEDULER_CONTROL}.rename_app"
RETIRE_APP_REQUEST = f"{SCHEDULER_CONTROL}.retire_app"
GIVE_BACK_APP_REQUEST = f"{SCHEDULER_CONTROL}.give_back_app"
DELETE_REQUEST = f"{SCHEDULER_CONTROL}.delete"
ENQUEUE_REQUEST = f"{SCHEDULER_CONTROL}.enqueue"
DISMISS_REQUEST = f"{SCHEDULER_CONTROL}.dismiss"
INPUT_QUESTION = f"{SCHEDULER_CONTROL}.input"
ORIGIN_QUESTION = f"{SCHEDULER_CONTROL}.origin"
CANCEL_OUTSTANDING_REQUEST = f"{SCHEDULER_CONTROL}.cancel"

# The worker token of the dispatcher's own events: no name of a worker starts with an underscore.
DISPATCHER = "_dispatcher"

MESSAGE_ID_HEADER = "Nats-Msg-Id"
EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT_HEADER = "Nats-Expected-Last-Subject-Sequence-Subject"
TRACEPARENT_HEADER = "traceparent"
# Headers of a refused request: the first line of the reason, and its kind.
ERROR_HEADER = "Nats-Service-Error"
ERROR_CODE_HEADER = "Nats-Service-Error-Code"

# Error codes of the broker in the worker protocol.
WRONG_SEQUENCE = 10071
UNDECIDED_SEQUENCE = 10164
ORDER_ALREADY_STORED = 10077


def work(group: str) -> str:
    """Return the subject of the work of a group."""
    return f"headway.work.{check_name('group', group)}"


def order(job: str, lease: UUID) -> str:
    """Return the subject of the order of a lease."""
    return f"headway.run.{check_name('job', job)}.{lease}"


def job_and_lease(subject: str) -> tuple[str, UUID]:
    """Return the job and the lease of an order's subject."""
    job, _, lease = subject.removeprefix("headway.run.").partition(".")
    return job, UUID(lease)


def orders_of(job: str) -> str:
    """Return the filter of a job's consumer."""
    return f"headway.run.{check_name('job', job)}.*"


def worker_consumer(job: str) -> str:
    """Return the durable consumer that all workers of a job share."""
    return f"{_WORKER_CONSUMER}{check_name('job', job)}"


def job_of_consumer(name: str) -> str | None:
    """Return the job of a workers' consumer; `None` for other consumers."""
    return name.removeprefix(_WORKER_CONSUMER) if name.startswith(_WORKER_CONSUMER) else None


def event(lease: UUID, worker: str) -> str:
    """Return the subject of the events of a lease from one worker."""
    return f"headway.event.{lease}.{_worker_token(worker)}"


def events_of(lease: UUID) -> str:
    """Return the subjects of all events of a lease: the scope of the fence."""
    return f"headway.event.{lease}.*"


def settled(group: str) -> str:
    """Return the subject of the outcomes of a group's work."""
    return f"headway.settled.{check_name('group', group)}"


def cancel(worker: str) -> str:
    """Return the subject of cancels that do not wait for a worker's next heartbeat."""
    return f"headway.cancel.{check_name('worker', worker)}"


def progress(lease: UUID, worker: str) -> str:
    """Return the subject of the progress of a lease's runs."""
    return f"headway.progress.{lease}.{check_name('worker', worker)}"


def fence(lease: UUID, expected_sequence: int) -> dict[str, str]:
    """Return the headers of a fenced message."""
    return {
        EXPECTED_SEQUENCE_HEADER: str(expected_sequence),
        # Otherwise the sequence would be checked for the publisher's own subject only.
        EXPECTED_SUBJECT_HEADER: events_of(lease),
    }


def lease_and_worker(subject: str, *, kind: str = "event") -> tuple[UUID, str]:
    """Return the lease and the worker of a subject; the body is not trusted for them."""
    prefix, _, rest = subject.partition(f"headway.{kind}.")
    token, _, worker = rest.partition(".")
    lease = UUID(token)
    # Another spelling of the same lease would be outside its fence.
    if prefix or token != str(lease):
        raise ValueError(f"{subject!r} is not headway.{kind}.<lease>.<worker>")
    return lease, _worker_token(worker)


def _worker_token(worker: str) -> str:
    return worker if worker == DISPATCHER else check_name("worker", worker)
