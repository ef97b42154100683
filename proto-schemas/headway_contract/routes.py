"""The requests of the HTTP API that a service carries out.

A field of the question that the path names is taken from there. Of the rest, a GET and a DELETE
have their query and everything else its body. `actor` is never among them: it is the person who
signed in.
"""

from typing import Literal

from msgspec import Struct

from headway_contract import (
    applications,
    canaries,
    dispatching,
    operating,
    pausing,
    scheduling,
    subjects,
    waiting,
)

Role = Literal["viewer", "operator", "admin"]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

# Each role may do what those before it may.
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
API = "/api/v1"
# What else a request says stands in the query of these: HTTP knows no body of theirs.
WITHOUT_BODY = ("GET", "DELETE")

# How long a service may take: most answer in milliseconds, fire times of thousands take longer.
USUAL_SECONDS = 5.0
PATIENT_SECONDS = 30.0


class Route(Struct, frozen=True, kw_only=True):
    """One route.

    `hidden` are fields that only services send each other. The header Idempotency-Key fills the
    field that `key` names. With `handler_checks` the handler checks the types of the body's fields,
    because it can report more about them.
    """

    name: str
    method: Method
    path: str
    role: Role
    summary: str
    question: type[Struct]
    answer: type[Struct]
    subject: str = ""
    tag: str = ""
    hidden: tuple[str, ...] = ()
    key: str = ""
    seconds: float = USUAL_SECONDS
    handler_checks: bool = False


MANIFESTS = "Manifests"
GROUPS = "Groups"
JOBS = "Jobs"
WORK = "Work and runs"
LETTERS = "Dead letters"
DEFINITIONS = "Definitions"
SYSTEM = "System"

FORWARDED: tuple[Route, ...] = (
    Route(
        name="change_manifest", method="PATCH", path="/manifests/{manifest}", role="operator",
        tag=MANIFESTS, summary="Change what operators own of a manifest: enabled, retry, jitter.",
        subject=subjects.CHANGE_REQUEST,
        question=scheduling.ChangeRequest, answer=scheduling.Changed,
    ),
    Route(
        name="change_many", method="POST", path="/manifests/many", role="operator", tag=MANIFESTS,
        summary="Enable, disable or run many manifests; tells of each what became of it.",
        subject=subjects.CHANGE_MANY_REQUEST, key="key", seconds=PATIENT_SECONDS,
        question=operating.ChangeManyRequest, answer=operating.ManyChanged,
    ),
    Route(
        name="delete_manifest", method="DELETE", path="/manifests/{manifest}", role="admin",
        tag=MANIFESTS,
        summary="Delete a manifest that no code declares, with its work and runs.",
        subject=subjects.DELETE_REQUEST, key="key",
        question=scheduling.DeleteRequest, answer=scheduling.Changed,
    ),
    Route(
        name="preview", method="GET", path="/manifests/{manifest}/preview", role="viewer",
        tag=MANIFESTS, summary="When a manifest will fire.",
        subject=subjects.PREVIEW_QUESTION, seconds=PATIENT_SECONDS,
        question=scheduling.PreviewQuestion, answer=scheduling.PreviewAnswer,
    ),
    Route(
        name="explain", method="GET", path="/manifests/{manifest}/explain", role="viewer",
        tag=MANIFESTS, summary="Why a manifest ran or did not, at a time or as it stands.",
        subject=subjects.EXPLAIN_QUESTION,
        question=scheduling.ExplainQuestion, answer=scheduling.ExplainAnswer,
    ),
    Route(
        name="trigger", method="POST", path="/manifests/{manifest}/trigger", role="operator",
        tag=MANIFESTS, summary="Run a manifest now, or after a delay.",
        subject=subjects.TRIGGER_REQUEST, key="key",
        question=scheduling.TriggerRequest, answer=scheduling.TriggerAnswer,
    ),
    Route(
        name="backfill", method="POST", path="/manifests/{manifest}/backfill", role="operator",
        tag=MANIFESTS, summary="Queue the occurrences of a past range, each once.",
        subject=subjects.BACKFILL_REQUEST, seconds=PATIENT_SECONDS,
        question=scheduling.BackfillRequest, answer=scheduling.BackfillAnswer,
    ),
    Route(
        name="cancel_manifest", method="POST", path="/manifests/{manifest}/cancel",
        role="operator", tag=MANIFESTS, summary="End all work of a manifest early.",
        subject=subjects.CANCEL_OUTSTANDING_REQUEST, hidden=("group", "work"),
        seconds=PATIENT_SECONDS,
        key="key",
        question=scheduling.CancelOutstandingRequest, answer=dispatching.CancelAnswer,
    ),
    Route(
        name="pause", method="POST", path="/pause", role="operator", tag=MANIFESTS,
        summary="Let nothing of manifests begin: those named, of a group, with labels, or all.",
        subject=subjects.PAUSE_REQUEST, seconds=PATIENT_SECONDS,
        key="key",
        question=pausing.PauseRequest, answer=pausing.PauseAnswer,
    ),
    Route(
        name="resume", method="POST", path="/resume", role="operator", tag=MANIFESTS,
        summary="End the pause of manifests, or with dry_run tell what they would make good.",
        subject=subjects.RESUME_REQUEST, seconds=PATIENT_SECONDS,
        key="key",
        question=pausing.ResumeRequest, answer=pausing.ResumeAnswer,
    ),
    Route(
        name="check_ledger", method="GET", path="/ledger", role="viewer", tag=MANIFESTS,
        summary="Compare what should have fired with what the ledger tells.",
        subject=subjects.LEDGER_QUESTION, seconds=PATIENT_SECONDS,
        question=scheduling.LedgerQuestion, answer=scheduling.LedgerAnswer,
    ),
    Route(
        name="change_group", method="PATCH", path="/groups/{group}", role="operator", tag=GROUPS,
        summary="Change the limits of a group.", subject=subjects.CHANGE_GROUP_REQUEST,
        question=scheduling.ChangeGroupRequest, answer=scheduling.Changed,
    ),
    Route(
        name="cancel_group", method="POST", path="/groups/{group}/cancel", role="operator",
        tag=GROUPS, summary="End all work of a group early.",
        subject=subjects.CANCEL_OUTSTANDING_REQUEST, hidden=("manifest", "work"),
        seconds=PATIENT_SECONDS,
        key="key",
        question=scheduling.CancelOutstandingRequest, answer=dispatching.CancelAnswer,
    ),
    Route(
        name="change_job", method="PATCH", path="/jobs/{job}", role="operator", tag=JOBS,
        summary="Change the limits of a job.", subject=subjects.CHANGE_JOB_REQUEST,
        question=scheduling.ChangeJobRequest, answer=scheduling.Changed,
    ),
    Route(
        name="enqueue", method="POST", path="/jobs/{job}/enqueue", role="operator", tag=JOBS,
        summary="Queue work of a declared job, without a manifest.",
        subject=subjects.ENQUEUE_REQUEST, key="key",
        question=scheduling.EnqueueRequest, answer=scheduling.EnqueueAnswer,
    ),
    Route(
        name="check_input", method="POST", path="/jobs/{job}/check-input", role="viewer", tag=JOBS,
        summary="Whether a job would take an input. It changes nothing.",
        subject=subjects.INPUT_QUESTION,
        question=scheduling.InputQuestion, answer=scheduling.InputAnswer,
    ),
    Route(
        name="dismiss", method="DELETE", path="/enqueued/{work}", role="operator", tag=JOBS,
        summary="Forget work that was enqueued and refused.", subject=subjects.DISMISS_REQUEST,
        question=scheduling.DismissRequest, answer=scheduling.Changed,
    ),
    Route(
        name="cancel_work", method="POST", path="/work/cancel", role="operator", tag=WORK,
        summary="End works or runs early, by their ids.", subject=subjects.CANCEL_REQUEST,
        hidden=("works", "group", "manifest_id"),
        key="key",
        question=dispatching.CancelRequest, answer=dispatching.CancelAnswer,
    ),
    Route(
        name="explain_work", method="GET", path="/work/{work}/explain", role="viewer", tag=WORK,
        summary="Why a piece of work waits: its gates, and who holds the slots.",
        subject=subjects.EXPLAIN_WORK_QUESTION,
        question=waiting.ExplainWorkQuestion, answer=waiting.ExplainWorkAnswer,
    ),
    Route(
        name="cancel_one_work", method="POST", path="/work/{work}/cancel", role="operator",
        tag=WORK, summary="End one piece of work early, also one that is still on its way.",
        subject=subjects.CANCEL_OUTSTANDING_REQUEST, hidden=("manifest", "group"),
        seconds=PATIENT_SECONDS,
        key="key",
        question=scheduling.CancelOutstandingRequest, answer=dispatching.CancelAnswer,
    ),
    Route(
        name="drain_workers", method="POST", path="/workers/drain", role="operator", tag=WORK,
        summary="Let workers take no more orders, finish what they run, and end.",
        subject=subjects.DRAIN_REQUEST, key="key",
        question=operating.DrainRequest, answer=operating.DrainAnswer,
    ),
    Route(
        name="scheduler_settings", method="GET", path="/settings/scheduler", role="viewer",
        tag=SYSTEM, summary="Every setting of a scheduler, and who says so. Secrets are masked.",
        subject=subjects.SCHEDULER_SETTINGS_QUESTION,
        question=operating.SettingsQuestion, answer=operating.SettingsAnswer,
    ),
    Route(
        name="dispatcher_settings", method="GET", path="/settings/dispatcher", role="viewer",
        tag=SYSTEM, summary="Every setting of a dispatcher, and who says so. Secrets are masked.",
        subject=subjects.DISPATCHER_SETTINGS_QUESTION,
        question=operating.SettingsQuestion, answer=operating.SettingsAnswer,
    ),
    Route(
        name="test_notification", method="POST", path="/notifications/test", role="operator",
        tag=SYSTEM, summary="Send a test notification to the webhook, and tell how that went.",
        subject=subjects.NOTIFY_TEST_REQUEST, seconds=PATIENT_SECONDS,
        question=operating.NotifyTestRequest, answer=scheduling.Changed,
    ),
    Route(
        name="retry", method="POST", path="/dead-letters/retry", role="operator", tag=LETTERS,
        summary="Run the work of dead letters again: those named, or those of a filter.",
        subject=subjects.RETRY_REQUEST, seconds=PATIENT_SECONDS,
        key="key",
        question=dispatching.RetryRequest, answer=dispatching.LettersChanged,
    ),
    Route(
        name="acknowledge", method="POST", path="/dead-letters/acknowledge", role="operator",
        tag=LETTERS, summary="Put dead letters away: those named, or those of a filter.",
        subject=subjects.ACKNOWLEDGE_REQUEST, seconds=PATIENT_SECONDS,
        key="key",
        question=dispatching.AcknowledgeRequest, answer=dispatching.LettersChanged,
    ),
    Route(
        name="begin_canary", method="POST", path="/dead-letters/canaries", role="operator",
        tag=LETTERS, summary="Retry the dead letters of a failure: 1, then 10, then all.",
        subject=subjects.BEGIN_CANARY_REQUEST, key="key",
        question=canaries.BeginCanaryRequest, answer=canaries.CanaryStatus,
    ),
    Route(
        name="stop_canary", method="POST", path="/dead-letters/canaries/{canary}/stop",
        role="operator", tag=LETTERS, summary="Stop a canary; work under way continues.",
        subject=subjects.STOP_CANARY_REQUEST,
        question=canaries.StopCanaryRequest, answer=canaries.CanaryStatus,
    ),
    Route(
        name="plan", method="POST", path="/plan", role="viewer", tag=DEFINITIONS,
        summary="What applying definitions would change, and which fire times. Changes nothing.",
        subject=subjects.PLAN_QUESTION, seconds=PATIENT_SECONDS,
        question=scheduling.ApplyRequest, answer=scheduling.ApplyAnswer,
    ),
    Route(
        name="apply", method="POST", path="/apply", role="admin", tag=DEFINITIONS,
        summary="Store definitions, all or none, and prune what they no longer name.",
        subject=subjects.APPLY_REQUEST, seconds=PATIENT_SECONDS,
        key="key",
        question=scheduling.ApplyRequest, answer=scheduling.ApplyAnswer,
    ),
    Route(
        name="rename_app", method="POST", path="/apps/{app}/rename", role="admin", tag=DEFINITIONS,
        summary="Give all that an application owns to another name, with its history.",
        subject=subjects.RENAME_APP_REQUEST, key="key", seconds=PATIENT_SECONDS,
        question=applications.RenameAppRequest, answer=scheduling.Changed,
    ),
    Route(
        name="retire_app", method="POST", path="/apps/{app}/retire", role="admin", tag=DEFINITIONS,
        summary="Delete the manifests of an application with all runs, and retire its jobs.",
        subject=subjects.RETIRE_APP_REQUEST, key="key", seconds=PATIENT_SECONDS,
        question=applications.RetireAppRequest, answer=scheduling.Changed,
    ),
    Route(
        name="give_back_app", method="POST", path="/apps/{app}/give-back", role="admin",
        tag=DEFINITIONS,
        summary="Let the code of an application declare it again that files took over.",
        subject=subjects.GIVE_BACK_APP_REQUEST, key="key",
        question=applications.GiveBackAppRequest, answer=scheduling.Changed,
    ),
)  # fmt: skip

# Subjects that no person asks on: services and workers among themselves.
AMONG_SERVICES = frozenset(
    {
        subjects.LEASE_QUESTION,
        subjects.RECONCILE_QUESTION,
        subjects.ACTIVATION_QUESTION,
        subjects.ORIGIN_QUESTION,
    }
)
