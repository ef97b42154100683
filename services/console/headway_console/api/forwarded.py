"""Requests that the scheduler or the dispatcher carries out."""

from typing import Any

from headway.client.control import PATIENT_SECONDS, USUAL_SECONDS
from headway_contract import dead_letters as letters
from headway_contract import definitions, manifests, operations, subjects, work_queue
from headway_contract.fields import Changed
from headway_contract.http import Role
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
    slow: bool = False,
    hidden: tuple[str, ...] = (),
) -> Endpoint:
    """Make the endpoint of a request to a service; only services send the hidden fields."""

    async def respond(request: HttpRequest, fields: dict[str, Any]) -> Any:
        seconds = PATIENT_SECONDS if slow else USUAL_SECONDS
        return await ask(request, subject, question(**fields), answer, timeout=seconds)

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
        subjects.CHANGE_REQUEST, manifests.ChangeRequest, Changed,
    ),
    _forward(
        "change_many", "POST", "/manifests/many", MANIFESTS,
        "Enable, disable or run many manifests, with a result for each.",
        subjects.CHANGE_MANY_REQUEST, manifests.ChangeManyRequest, manifests.ManyChanged, slow=True,
    ),
    _forward(
        "delete_manifest", "DELETE", "/manifests/{manifest}", MANIFESTS,
        "Delete a manifest that no code declares, with its work and runs.",
        subjects.DELETE_REQUEST, manifests.DeleteRequest, Changed, role="admin",
    ),
    _forward(
        "preview", "GET", "/manifests/{manifest}/preview", MANIFESTS,
        "List the next fire times of a manifest.",
        subjects.PREVIEW_QUESTION, manifests.PreviewQuestion, manifests.PreviewAnswer,
        role="viewer", slow=True,
    ),
    _forward(
        "explain", "GET", "/manifests/{manifest}/explain", MANIFESTS,
        "Explain why a manifest ran or did not run, at a time or now.",
        subjects.EXPLAIN_QUESTION, manifests.ExplainQuestion, manifests.ExplainAnswer,
        role="viewer",
    ),
    _forward(
        "trigger", "POST", "/manifests/{manifest}/trigger", MANIFESTS,
        "Run a manifest now, or after a delay.",
        subjects.TRIGGER_REQUEST, manifests.TriggerRequest, manifests.TriggerAnswer,
    ),
    _forward(
        "backfill", "POST", "/manifests/{manifest}/backfill", MANIFESTS,
        "Queue the occurrences of a past range, each once.",
        subjects.BACKFILL_REQUEST, manifests.BackfillRequest, manifests.BackfillAnswer, slow=True,
    ),
    _forward(
        "cancel_manifest", "POST", "/manifests/{manifest}/cancel", MANIFESTS,
        "Cancel all work of a manifest.",
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer,
        hidden=("group", "work"), slow=True,
    ),
    _forward(
        "pause", "POST", "/pause", MANIFESTS,
        "Pause manifests: named ones, of a group, with labels, or all.",
        subjects.PAUSE_REQUEST, manifests.PauseRequest, manifests.PauseAnswer, slow=True,
    ),
    _forward(
        "resume", "POST", "/resume", MANIFESTS,
        "Resume paused manifests, or with dry_run show the effect.",
        subjects.RESUME_REQUEST, manifests.ResumeRequest, manifests.ResumeAnswer, slow=True,
    ),
    _forward(
        "check_ledger", "GET", "/ledger", MANIFESTS,
        "Compare the due times of manifests with the recorded decisions.",
        subjects.LEDGER_QUESTION, manifests.LedgerQuestion, manifests.LedgerAnswer,
        role="viewer", slow=True,
    ),
    _forward(
        "change_group", "PATCH", "/groups/{group}", GROUPS, "Change the limits of a group.",
        subjects.CHANGE_GROUP_REQUEST, operations.ChangeGroupRequest, Changed,
    ),
    _forward(
        "cancel_group", "POST", "/groups/{group}/cancel", GROUPS, "Cancel all work of a group.",
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer,
        hidden=("manifest", "work"), slow=True,
    ),
    _forward(
        "change_job", "PATCH", "/jobs/{job}", JOBS, "Change the limits of a job.",
        subjects.CHANGE_JOB_REQUEST, operations.ChangeJobRequest, Changed,
    ),
    _forward(
        "enqueue", "POST", "/jobs/{job}/enqueue", JOBS,
        "Queue work of a declared job, without a manifest.",
        subjects.ENQUEUE_REQUEST, work_queue.EnqueueRequest, work_queue.EnqueueAnswer,
    ),
    _forward(
        "check_input", "POST", "/jobs/{job}/check-input", JOBS,
        "Check whether a job accepts an input. Changes nothing.",
        subjects.INPUT_QUESTION, work_queue.InputQuestion, work_queue.InputAnswer, role="viewer",
    ),
    _forward(
        "dismiss", "DELETE", "/enqueued/{work}", JOBS,
        "Forget enqueued work that was refused.",
        subjects.DISMISS_REQUEST, work_queue.DismissRequest, Changed,
    ),
    _forward(
        "cancel_work", "POST", "/work/cancel", WORK, "Cancel work or runs, by their ids.",
        subjects.CANCEL_REQUEST, work_queue.CancelRequest, work_queue.CancelAnswer,
        hidden=("works", "group", "manifest_id"),
    ),
    _forward(
        "explain_work", "GET", "/work/{work}/explain", WORK,
        "Explain why a piece of work waits: its gates, and the holders of the slots.",
        subjects.EXPLAIN_WORK_QUESTION, work_queue.WorkQuestion, work_queue.ExplainWorkAnswer,
        role="viewer",
    ),
    _forward(
        "cancel_one_work", "POST", "/work/{work}/cancel", WORK,
        "Cancel one piece of work, also before it reaches the dispatcher.",
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer,
        hidden=("manifest", "group"), slow=True,
    ),
    _forward(
        "drain_workers", "POST", "/workers/drain", WORK,
        "Drain workers: they finish their runs, take no more orders, and exit.",
        subjects.DRAIN_REQUEST, operations.DrainRequest, operations.DrainAnswer,
    ),
    _forward(
        "scheduler_settings", "GET", "/settings/scheduler", SYSTEM,
        "List the settings of a scheduler with their sources. Secrets are masked.",
        subjects.SCHEDULER_SETTINGS_QUESTION, operations.SettingsQuestion,
        operations.SettingsAnswer, role="viewer",
    ),
    _forward(
        "dispatcher_settings", "GET", "/settings/dispatcher", SYSTEM,
        "List the settings of a dispatcher with their sources. Secrets are masked.",
        subjects.DISPATCHER_SETTINGS_QUESTION, operations.SettingsQuestion,
        operations.SettingsAnswer, role="viewer",
    ),
    _forward(
        "test_notification", "POST", "/notifications/test", SYSTEM,
        "Send a test notification to the webhook.",
        subjects.NOTIFY_TEST_REQUEST, operations.NotifyTestRequest, Changed, slow=True,
    ),
    _forward(
        "retry", "POST", "/dead-letters/retry", LETTERS,
        "Run the work of dead letters again: named ones, or those of a filter.",
        subjects.RETRY_REQUEST, letters.RetryRequest, letters.LettersChanged, slow=True,
    ),
    _forward(
        "acknowledge", "POST", "/dead-letters/acknowledge", LETTERS,
        "Dismiss dead letters: named ones, or those of a filter.",
        subjects.ACKNOWLEDGE_REQUEST, letters.AcknowledgeRequest, letters.LettersChanged, slow=True,
    ),
    _forward(
        "begin_canary", "POST", "/dead-letters/canaries", LETTERS,
        "Retry the dead letters of a failure gradually: 1, then 10, then all.",
        subjects.BEGIN_CANARY_REQUEST, letters.BeginCanaryRequest, letters.CanaryStatus,
    ),
    _forward(
        "stop_canary", "POST", "/dead-letters/canaries/{canary}/stop", LETTERS,
        "Stop a canary; work under way continues.",
        subjects.STOP_CANARY_REQUEST, letters.StopCanaryRequest, letters.CanaryStatus,
    ),
    _forward(
        "plan", "POST", "/plan", DEFINITIONS,
        "Show what applying definitions would change, with fire times. Changes nothing.",
        subjects.PLAN_QUESTION, definitions.ApplyRequest, definitions.ApplyAnswer, role="viewer",
        slow=True,
    ),
    _forward(
        "apply", "POST", "/apply", DEFINITIONS,
        "Store definitions, all or none, and prune manifests that they no longer name.",
        subjects.APPLY_REQUEST, definitions.ApplyRequest, definitions.ApplyAnswer, role="admin",
        slow=True,
    ),
    _forward(
        "rename_app", "POST", "/apps/{app}/rename", DEFINITIONS,
        "Give everything that an application owns to another name, with its history.",
        subjects.RENAME_APP_REQUEST, definitions.RenameAppRequest, Changed, role="admin", slow=True,
    ),
    _forward(
        "retire_app", "POST", "/apps/{app}/retire", DEFINITIONS,
        "Delete the manifests of an application with all runs, and retire its jobs.",
        subjects.RETIRE_APP_REQUEST, definitions.RetireAppRequest, Changed, role="admin", slow=True,
    ),
    _forward(
        "give_back_app", "POST", "/apps/{app}/give-back", DEFINITIONS,
        "Return an application that files took over to its code.",
        subjects.GIVE_BACK_APP_REQUEST, definitions.GiveBackAppRequest, Changed, role="admin",
    ),
)  # fmt: skip
