"""Requests that the scheduler or the dispatcher carries out."""

from typing import Any

from headway_contract import dead_letters as letters
from headway_contract import definitions, manifests, operations, subjects, work_queue
from headway_contract.fields import Changed
from headway_contract.http import Role
from msgspec import Struct

from headway_console.api.endpoints import Endpoint, Method, Tag, first_line
from headway_console.api.request_fields import shape_of, struct_fields
from headway_console.services import HttpRequest, ask


def _forward(
    name: str,
    method: Method,
    path: str,
    tag: Tag,
    subject: str,
    question: type[Struct],
    answer: type[Struct],
    *,
    summary: str = "",
    role: Role | None = None,
    slow: bool = False,
    hidden: tuple[str, ...] = (),
) -> Endpoint:
    """Make the endpoint of a request to a service; only services send the hidden fields."""

    async def respond(request: HttpRequest, fields: dict[str, Any]) -> Any:
        return await ask(request, subject, question(**fields), answer, slow=slow)

    return Endpoint(
        name=name,
        method=method,
        path=path,
        role=role or ("viewer" if method == "GET" else "operator"),
        tag=tag,
        summary=summary or first_line(question),
        shape=shape_of(name, method, path, struct_fields(question, hidden=hidden)),
        answer=answer,
        respond=respond,
        subject=subject,
    )


FORWARDED: tuple[Endpoint, ...] = (
    _forward(
        "change_manifest", "PATCH", "/manifests/{manifest}", Tag.MANIFESTS,
        subjects.CHANGE_REQUEST, manifests.ChangeRequest, Changed,
        summary="Enable or disable a manifest, or change its retry settings or jitter.",
    ),
    _forward(
        "change_many", "POST", "/manifests/many", Tag.MANIFESTS,
        subjects.CHANGE_MANY_REQUEST, manifests.ChangeManyRequest, manifests.ManyChanged, slow=True,
    ),
    _forward(
        "delete_manifest", "DELETE", "/manifests/{manifest}", Tag.MANIFESTS,
        subjects.DELETE_REQUEST, manifests.DeleteRequest, Changed, role="admin",
    ),
    _forward(
        "preview", "GET", "/manifests/{manifest}/preview", Tag.MANIFESTS,
        subjects.PREVIEW_QUESTION, manifests.PreviewQuestion, manifests.PreviewAnswer,
        slow=True,
        summary="List the next fire times of a manifest.",
    ),
    _forward(
        "explain", "GET", "/manifests/{manifest}/explain", Tag.MANIFESTS,
        subjects.EXPLAIN_QUESTION, manifests.ExplainQuestion, manifests.ExplainAnswer,
        summary="Explain why a manifest ran or did not run, at a time or now.",
    ),
    _forward(
        "trigger", "POST", "/manifests/{manifest}/trigger", Tag.MANIFESTS,
        subjects.TRIGGER_REQUEST, manifests.TriggerRequest, manifests.TriggerAnswer,
    ),
    _forward(
        "backfill", "POST", "/manifests/{manifest}/backfill", Tag.MANIFESTS,
        subjects.BACKFILL_REQUEST, manifests.BackfillRequest, manifests.BackfillAnswer, slow=True,
    ),
    _forward(
        "cancel_manifest", "POST", "/manifests/{manifest}/cancel", Tag.MANIFESTS,
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer, hidden=("group", "work"), slow=True,
        summary="Cancel all work of a manifest.",
    ),
    _forward(
        "pause", "POST", "/pause", Tag.MANIFESTS,
        subjects.PAUSE_REQUEST, manifests.PauseRequest, manifests.PauseAnswer, slow=True,
        summary="Pause manifests: named ones, of a group, with labels, or all.",
    ),
    _forward(
        "resume", "POST", "/resume", Tag.MANIFESTS,
        subjects.RESUME_REQUEST, manifests.ResumeRequest, manifests.ResumeAnswer, slow=True,
        summary="Resume paused manifests, or with dry_run show the effect.",
    ),
    _forward(
        "check_ledger", "GET", "/ledger", Tag.MANIFESTS,
        subjects.LEDGER_QUESTION, manifests.LedgerQuestion, manifests.LedgerAnswer, slow=True,
        summary="Compare the due times of manifests with the recorded decisions.",
    ),
    _forward(
        "change_group", "PATCH", "/groups/{group}", Tag.GROUPS,
        subjects.CHANGE_GROUP_REQUEST, operations.ChangeGroupRequest, Changed,
    ),
    _forward(
        "cancel_group", "POST", "/groups/{group}/cancel", Tag.GROUPS,
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer, hidden=("manifest", "work"), slow=True,
        summary="Cancel all work of a group.",
    ),
    _forward(
        "change_job", "PATCH", "/jobs/{job}", Tag.JOBS,
        subjects.CHANGE_JOB_REQUEST, operations.ChangeJobRequest, Changed,
    ),
    _forward(
        "enqueue", "POST", "/jobs/{job}/enqueue", Tag.JOBS,
        subjects.ENQUEUE_REQUEST, work_queue.EnqueueRequest, work_queue.EnqueueAnswer,
    ),
    _forward(
        "check_input", "POST", "/jobs/{job}/check-input", Tag.JOBS,
        subjects.INPUT_QUESTION, work_queue.InputQuestion, work_queue.InputAnswer, role="viewer",
        summary="Check whether a job accepts an input. Changes nothing.",
    ),
    _forward(
        "dismiss", "DELETE", "/enqueued/{work}", Tag.JOBS,
        subjects.DISMISS_REQUEST, work_queue.DismissRequest, Changed,
    ),
    _forward(
        "cancel_work", "POST", "/work/cancel", Tag.WORK,
        subjects.CANCEL_REQUEST, work_queue.CancelRequest, work_queue.CancelAnswer,
        hidden=("works", "group", "manifest_id"),
        summary="Cancel work or runs, by their ids.",
    ),
    _forward(
        "explain_work", "GET", "/work/{work}/explain", Tag.WORK,
        subjects.EXPLAIN_WORK_QUESTION, work_queue.WorkQuestion, work_queue.ExplainWorkAnswer,
        summary="Explain why a piece of work waits: its gates, and the holders of the slots.",
    ),
    _forward(
        "cancel_one_work", "POST", "/work/{work}/cancel", Tag.WORK,
        subjects.CANCEL_OUTSTANDING_REQUEST, work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer, hidden=("manifest", "group"), slow=True,
        summary="Cancel one piece of work, also before it reaches the dispatcher.",
    ),
    _forward(
        "drain_workers", "POST", "/workers/drain", Tag.WORK,
        subjects.DRAIN_REQUEST, operations.DrainRequest, operations.DrainAnswer,
    ),
    _forward(
        "scheduler_settings", "GET", "/settings/scheduler", Tag.SYSTEM,
        subjects.SCHEDULER_SETTINGS_QUESTION, operations.SettingsQuestion,
        operations.SettingsAnswer,
        summary="List the settings of a scheduler with their sources. Secrets are masked.",
    ),
    _forward(
        "dispatcher_settings", "GET", "/settings/dispatcher", Tag.SYSTEM,
        subjects.DISPATCHER_SETTINGS_QUESTION, operations.SettingsQuestion,
        operations.SettingsAnswer,
        summary="List the settings of a dispatcher with their sources. Secrets are masked.",
    ),
    _forward(
        "test_notification", "POST", "/notifications/test", Tag.SYSTEM,
        subjects.NOTIFY_TEST_REQUEST, operations.NotifyTestRequest, Changed, slow=True,
    ),
    _forward(
        "retry", "POST", "/dead-letters/retry", Tag.LETTERS,
        subjects.RETRY_REQUEST, letters.RetryRequest, letters.LettersChanged, slow=True,
        summary="Run the work of dead letters again: named ones, or those of a filter.",
    ),
    _forward(
        "acknowledge", "POST", "/dead-letters/acknowledge", Tag.LETTERS,
        subjects.ACKNOWLEDGE_REQUEST, letters.AcknowledgeRequest, letters.LettersChanged, slow=True,
    ),
    _forward(
        "begin_canary", "POST", "/dead-letters/canaries", Tag.LETTERS,
        subjects.BEGIN_CANARY_REQUEST, letters.BeginCanaryRequest, letters.CanaryStatus,
    ),
    _forward(
        "stop_canary", "POST", "/dead-letters/canaries/{canary}/stop", Tag.LETTERS,
        subjects.STOP_CANARY_REQUEST, letters.StopCanaryRequest, letters.CanaryStatus,
    ),
    _forward(
        "plan", "POST", "/plan", Tag.DEFINITIONS,
        subjects.PLAN_QUESTION, definitions.ApplyRequest, definitions.ApplyAnswer, role="viewer",
        slow=True,
        summary="Show what applying definitions would change, with fire times. Changes nothing.",
    ),
    _forward(
        "apply", "POST", "/apply", Tag.DEFINITIONS,
        subjects.APPLY_REQUEST, definitions.ApplyRequest, definitions.ApplyAnswer, role="admin",
        slow=True,
        summary="Store definitions, all or none, and prune manifests that they no longer name.",
    ),
    _forward(
        "rename_app", "POST", "/apps/{app}/rename", Tag.DEFINITIONS,
        subjects.RENAME_APP_REQUEST, definitions.RenameAppRequest, Changed, role="admin", slow=True,
    ),
    _forward(
        "retire_app", "POST", "/apps/{app}/retire", Tag.DEFINITIONS,
        subjects.RETIRE_APP_REQUEST, definitions.RetireAppRequest, Changed, role="admin", slow=True,
    ),
    _forward(
        "give_back_app", "POST", "/apps/{app}/give-back", Tag.DEFINITIONS,
        subjects.GIVE_BACK_APP_REQUEST, definitions.GiveBackAppRequest, Changed, role="admin",
    ),
)  # fmt: skip
