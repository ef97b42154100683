"""Requests that the scheduler or the dispatcher carries out."""

from typing import Any

from headway.client.control import PATIENT_SECONDS, USUAL_SECONDS
from headway_contract import subjects
from headway_contract.dead_letters import (
    AcknowledgeRequest,
    BeginCanaryRequest,
    CanaryStatus,
    LettersChanged,
    RetryRequest,
    StopCanaryRequest,
)
from headway_contract.definitions import (
    ApplyAnswer,
    ApplyRequest,
    GiveBackAppRequest,
    RenameAppRequest,
    RetireAppRequest,
)
from headway_contract.fields import Changed
from headway_contract.http import Role
from headway_contract.manifests import (
    BackfillAnswer,
    BackfillRequest,
    ChangeManyRequest,
    ChangeRequest,
    DeleteRequest,
    ExplainAnswer,
    ExplainQuestion,
    LedgerAnswer,
    LedgerQuestion,
    ManyChanged,
    PauseAnswer,
    PauseRequest,
    PreviewAnswer,
    PreviewQuestion,
    ResumeAnswer,
    ResumeRequest,
    TriggerAnswer,
    TriggerRequest,
)
from headway_contract.operations import (
    ChangeGroupRequest,
    ChangeJobRequest,
    DrainAnswer,
    DrainRequest,
    NotifyTestRequest,
    SettingsAnswer,
    SettingsQuestion,
)
from headway_contract.work_queue import (
    CancelAnswer,
    CancelOutstandingRequest,
    CancelRequest,
    DismissRequest,
    EnqueueAnswer,
    EnqueueRequest,
    ExplainWorkAnswer,
    InputAnswer,
    InputQuestion,
    WorkQuestion,
)
from msgspec import Struct

from headway_console.api.endpoints import (
    DEFINITIONS,
    GROUPS,
    JOBS,
    LETTERS,
    MANIFESTS,
    SYSTEM,
    WORK,
    Endpoint,
    Method,
)
from headway_console.api.request_fields import shape_of, struct_fields
from headway_console.services import HttpRequest, ask


def _forward(
    name: str,
    method: Method,
    path: str,
    tag: str,
    summary: str,
    subject: str,
    question: type[Struct],
    answer: type[Struct],
    *,
    role: Role = "operator",
    timeout: float = USUAL_SECONDS,
    hidden: tuple[str, ...] = (),
) -> Endpoint:
    """Make the endpoint of a request to a service; only services send the hidden fields."""

    async def respond(request: HttpRequest, fields: dict[str, Any]) -> Any:
        return await ask(request, subject, question(**fields), answer, timeout=timeout)

    return Endpoint(
        name=name,
        method=method,
        path=path,
        role=role,
        tag=tag,
        summary=summary,
        shape=shape_of(name, method, path, struct_fields(question, hidden=hidden)),
        answer=answer,
        respond=respond,
        subject=subject,
    )


FORWARDED: tuple[Endpoint, ...] = (
    _forward(
        "change_manifest", "PATCH", "/manifests/{manifest}", MANIFESTS,
        "Enable or disable a manifest, or change its retry settings or jitter.",
        subjects.CHANGE_REQUEST, ChangeRequest, Changed,
    ),
    _forward(
        "change_many", "POST", "/manifests/many", MANIFESTS,
        "Enable, disable or run many manifests, with a result for each.",
        subjects.CHANGE_MANY_REQUEST, ChangeManyRequest, ManyChanged, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "delete_manifest", "DELETE", "/manifests/{manifest}", MANIFESTS,
        "Delete a manifest that no code declares, with its work and runs.",
        subjects.DELETE_REQUEST, DeleteRequest, Changed, role="admin",
    ),
    _forward(
        "preview", "GET", "/manifests/{manifest}/preview", MANIFESTS,
        "List the next fire times of a manifest.",
        subjects.PREVIEW_QUESTION, PreviewQuestion, PreviewAnswer,
        role="viewer", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "explain", "GET", "/manifests/{manifest}/explain", MANIFESTS,
        "Explain why a manifest ran or did not run, at a time or now.",
        subjects.EXPLAIN_QUESTION, ExplainQuestion, ExplainAnswer, role="viewer",
    ),
    _forward(
        "trigger", "POST", "/manifests/{manifest}/trigger", MANIFESTS,
        "Run a manifest now, or after a delay.",
        subjects.TRIGGER_REQUEST, TriggerRequest, TriggerAnswer,
    ),
    _forward(
        "backfill", "POST", "/manifests/{manifest}/backfill", MANIFESTS,
        "Queue the occurrences of a past range, each once.",
        subjects.BACKFILL_REQUEST, BackfillRequest, BackfillAnswer, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "cancel_manifest", "POST", "/manifests/{manifest}/cancel", MANIFESTS,
        "Cancel all work of a manifest.",
        subjects.CANCEL_OUTSTANDING_REQUEST, CancelOutstandingRequest, CancelAnswer,
        hidden=("group", "work"), timeout=PATIENT_SECONDS,
    ),
    _forward(
        "pause", "POST", "/pause", MANIFESTS,
        "Pause manifests: named ones, of a group, with labels, or all.",
        subjects.PAUSE_REQUEST, PauseRequest, PauseAnswer, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "resume", "POST", "/resume", MANIFESTS,
        "Resume paused manifests, or with dry_run show the effect.",
        subjects.RESUME_REQUEST, ResumeRequest, ResumeAnswer, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "check_ledger", "GET", "/ledger", MANIFESTS,
        "Compare the due times of manifests with the recorded decisions.",
        subjects.LEDGER_QUESTION, LedgerQuestion, LedgerAnswer,
        role="viewer", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "change_group", "PATCH", "/groups/{group}", GROUPS, "Change the limits of a group.",
        subjects.CHANGE_GROUP_REQUEST, ChangeGroupRequest, Changed,
    ),
    _forward(
        "cancel_group", "POST", "/groups/{group}/cancel", GROUPS, "Cancel all work of a group.",
        subjects.CANCEL_OUTSTANDING_REQUEST, CancelOutstandingRequest, CancelAnswer,
        hidden=("manifest", "work"), timeout=PATIENT_SECONDS,
    ),
    _forward(
        "change_job", "PATCH", "/jobs/{job}", JOBS, "Change the limits of a job.",
        subjects.CHANGE_JOB_REQUEST, ChangeJobRequest, Changed,
    ),
    _forward(
        "enqueue", "POST", "/jobs/{job}/enqueue", JOBS,
        "Queue work of a declared job, without a manifest.",
        subjects.ENQUEUE_REQUEST, EnqueueRequest, EnqueueAnswer,
    ),
    _forward(
        "check_input", "POST", "/jobs/{job}/check-input", JOBS,
        "Check whether a job accepts an input. Changes nothing.",
        subjects.INPUT_QUESTION, InputQuestion, InputAnswer, role="viewer",
    ),
    _forward(
        "dismiss", "DELETE", "/enqueued/{work}", JOBS,
        "Forget enqueued work that was refused.",
        subjects.DISMISS_REQUEST, DismissRequest, Changed,
    ),
    _forward(
        "cancel_work", "POST", "/work/cancel", WORK, "Cancel work or runs, by their ids.",
        subjects.CANCEL_REQUEST, CancelRequest, CancelAnswer,
        hidden=("works", "group", "manifest_id"),
    ),
    _forward(
        "explain_work", "GET", "/work/{work}/explain", WORK,
        "Explain why a piece of work waits: its gates, and the holders of the slots.",
        subjects.EXPLAIN_WORK_QUESTION, WorkQuestion, ExplainWorkAnswer, role="viewer",
    ),
    _forward(
        "cancel_one_work", "POST", "/work/{work}/cancel", WORK,
        "Cancel one piece of work, also before it reaches the dispatcher.",
        subjects.CANCEL_OUTSTANDING_REQUEST, CancelOutstandingRequest, CancelAnswer,
        hidden=("manifest", "group"), timeout=PATIENT_SECONDS,
    ),
    _forward(
        "drain_workers", "POST", "/workers/drain", WORK,
        "Drain workers: they finish their runs, take no more orders, and exit.",
        subjects.DRAIN_REQUEST, DrainRequest, DrainAnswer,
    ),
    _forward(
        "scheduler_settings", "GET", "/settings/scheduler", SYSTEM,
        "List the settings of a scheduler with their sources. Secrets are masked.",
        subjects.SCHEDULER_SETTINGS_QUESTION, SettingsQuestion, SettingsAnswer, role="viewer",
    ),
    _forward(
        "dispatcher_settings", "GET", "/settings/dispatcher", SYSTEM,
        "List the settings of a dispatcher with their sources. Secrets are masked.",
        subjects.DISPATCHER_SETTINGS_QUESTION, SettingsQuestion, SettingsAnswer, role="viewer",
    ),
    _forward(
        "test_notification", "POST", "/notifications/test", SYSTEM,
        "Send a test notification to the webhook.",
        subjects.NOTIFY_TEST_REQUEST, NotifyTestRequest, Changed, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "retry", "POST", "/dead-letters/retry", LETTERS,
        "Run the work of dead letters again: named ones, or those of a filter.",
        subjects.RETRY_REQUEST, RetryRequest, LettersChanged, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "acknowledge", "POST", "/dead-letters/acknowledge", LETTERS,
        "Dismiss dead letters: named ones, or those of a filter.",
        subjects.ACKNOWLEDGE_REQUEST, AcknowledgeRequest, LettersChanged, timeout=PATIENT_SECONDS,
    ),
    _forward(
        "begin_canary", "POST", "/dead-letters/canaries", LETTERS,
        "Retry the dead letters of a failure gradually: 1, then 10, then all.",
        subjects.BEGIN_CANARY_REQUEST, BeginCanaryRequest, CanaryStatus,
    ),
    _forward(
        "stop_canary", "POST", "/dead-letters/canaries/{canary}/stop", LETTERS,
        "Stop a canary; work under way continues.",
        subjects.STOP_CANARY_REQUEST, StopCanaryRequest, CanaryStatus,
    ),
    _forward(
        "plan", "POST", "/plan", DEFINITIONS,
        "Show what applying definitions would change, with fire times. Changes nothing.",
        subjects.PLAN_QUESTION, ApplyRequest, ApplyAnswer, role="viewer", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "apply", "POST", "/apply", DEFINITIONS,
        "Store definitions, all or none, and prune manifests that they no longer name.",
        subjects.APPLY_REQUEST, ApplyRequest, ApplyAnswer, role="admin", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "rename_app", "POST", "/apps/{app}/rename", DEFINITIONS,
        "Give everything that an application owns to another name, with its history.",
        subjects.RENAME_APP_REQUEST, RenameAppRequest, Changed,
        role="admin", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "retire_app", "POST", "/apps/{app}/retire", DEFINITIONS,
        "Delete the manifests of an application with all runs, and retire its jobs.",
        subjects.RETIRE_APP_REQUEST, RetireAppRequest, Changed,
        role="admin", timeout=PATIENT_SECONDS,
    ),
    _forward(
        "give_back_app", "POST", "/apps/{app}/give-back", DEFINITIONS,
        "Return an application that files took over to its code.",
        subjects.GIVE_BACK_APP_REQUEST, GiveBackAppRequest, Changed, role="admin",
    ),
)  # fmt: skip
