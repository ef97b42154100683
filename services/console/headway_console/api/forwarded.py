"""Requests that the scheduler or the dispatcher carries out."""

from typing import Any, cast

from headway_contract import subjects
from headway_contract.http import Role
from headway_contract.registry import REQUESTS

from headway_console.api.endpoints import Endpoint, Method, Tag, first_line, make_endpoint
from headway_console.api.request_fields import struct_fields
from headway_console.services import HttpRequest, ask


def _forward(
    tag: Tag,
    name: str,
    route: str,
    subject: str,
    *hidden: str,
    summary: str = "",
    role: Role | None = None,
    slow: bool = False,
) -> Endpoint:
    """Make the endpoint of a request to a service; only services send the hidden fields."""
    question, answer = REQUESTS[subject]
    method, _, path = route.partition(" ")

    async def respond(request: HttpRequest, fields: dict[str, Any]) -> Any:
        return await ask(request, subject, question(**fields), answer, slow=slow)

    return make_endpoint(
        *(name, cast("Method", method), path, tag, struct_fields(question, hidden=hidden)),
        role=role or ("viewer" if method == "GET" else "operator"),
        summary=summary or first_line(question),
        answer=answer,
        respond=respond,
        subject=subject,
    )


FORWARDED: tuple[Endpoint, ...] = (
    _forward(Tag.MANIFESTS, "change_manifest", "PATCH /manifests/{manifest}",
        subjects.CHANGE_REQUEST),
    _forward(Tag.MANIFESTS, "change_many", "POST /manifests/many", subjects.CHANGE_MANY_REQUEST),
    _forward(Tag.MANIFESTS, "delete_manifest", "DELETE /manifests/{manifest}",
        subjects.DELETE_REQUEST, role="admin"),
    _forward(Tag.MANIFESTS, "preview", "GET /manifests/{manifest}/preview",
        subjects.PREVIEW_QUESTION, slow=True),
    _forward(Tag.MANIFESTS, "explain", "GET /manifests/{manifest}/explain",
        subjects.EXPLAIN_QUESTION),
    _forward(Tag.MANIFESTS, "trigger", "POST /manifests/{manifest}/trigger",
        subjects.TRIGGER_REQUEST),
    _forward(Tag.MANIFESTS, "backfill", "POST /manifests/{manifest}/backfill",
        subjects.BACKFILL_REQUEST),
    _forward(Tag.MANIFESTS, "cancel_manifest", "POST /manifests/{manifest}/cancel",
        subjects.CANCEL_OUTSTANDING_REQUEST, "group", "work",
        summary="Cancel all work of a manifest."),
    _forward(Tag.MANIFESTS, "pause", "POST /pause", subjects.PAUSE_REQUEST),
    _forward(Tag.MANIFESTS, "resume", "POST /resume", subjects.RESUME_REQUEST),
    _forward(Tag.MANIFESTS, "check_ledger", "GET /ledger", subjects.LEDGER_QUESTION, slow=True),
    _forward(Tag.GROUPS, "change_group", "PATCH /groups/{group}", subjects.CHANGE_GROUP_REQUEST),
    _forward(Tag.GROUPS, "cancel_group", "POST /groups/{group}/cancel",
        subjects.CANCEL_OUTSTANDING_REQUEST, "manifest", "work",
        summary="Cancel all work of a group."),
    _forward(Tag.JOBS, "change_job", "PATCH /jobs/{job}", subjects.CHANGE_JOB_REQUEST),
    _forward(Tag.JOBS, "enqueue", "POST /jobs/{job}/enqueue", subjects.ENQUEUE_REQUEST),
    _forward(Tag.JOBS, "check_input", "POST /jobs/{job}/check-input", subjects.INPUT_QUESTION,
        role="viewer"),
    _forward(Tag.JOBS, "dismiss", "DELETE /enqueued/{work}", subjects.DISMISS_REQUEST),
    _forward(Tag.WORK, "cancel_work", "POST /work/cancel", subjects.CANCEL_REQUEST,
        "works", "group", "manifest_id", summary="Cancel work or runs, by their ids."),
    _forward(Tag.WORK, "explain_work", "GET /work/{work}/explain", subjects.EXPLAIN_WORK_QUESTION,
        summary="Explain why a piece of work waits: its gates, and the holders of the slots."),
    _forward(Tag.WORK, "cancel_one_work", "POST /work/{work}/cancel",
        subjects.CANCEL_OUTSTANDING_REQUEST, "manifest", "group",
        summary="Cancel one piece of work, also before it reaches the dispatcher."),
    _forward(Tag.WORK, "drain_workers", "POST /workers/drain", subjects.DRAIN_REQUEST),
    _forward(Tag.SYSTEM, "scheduler_settings", "GET /settings/scheduler",
        subjects.SCHEDULER_SETTINGS_QUESTION),
    _forward(Tag.SYSTEM, "dispatcher_settings", "GET /settings/dispatcher",
        subjects.DISPATCHER_SETTINGS_QUESTION),
    _forward(Tag.SYSTEM, "test_notification", "POST /notifications/test",
        subjects.NOTIFY_TEST_REQUEST),
    _forward(Tag.LETTERS, "retry", "POST /dead-letters/retry", subjects.RETRY_REQUEST),
    _forward(Tag.LETTERS, "acknowledge", "POST /dead-letters/acknowledge",
        subjects.ACKNOWLEDGE_REQUEST),
    _forward(Tag.LETTERS, "begin_canary", "POST /dead-letters/canaries",
        subjects.BEGIN_CANARY_REQUEST),
    _forward(Tag.LETTERS, "stop_canary", "POST /dead-letters/canaries/{canary}/stop",
        subjects.STOP_CANARY_REQUEST),
    _forward(Tag.DEFINITIONS, "plan", "POST /plan", subjects.PLAN_QUESTION, role="viewer",
        summary="Show what applying definitions would change, with fire times. Changes nothing."),
    _forward(Tag.DEFINITIONS, "apply", "POST /apply", subjects.APPLY_REQUEST, role="admin",
        summary="Store definitions, all or none, and prune manifests that they no longer name."),
    _forward(Tag.DEFINITIONS, "rename_app", "POST /apps/{app}/rename", subjects.RENAME_APP_REQUEST,
        role="admin"),
    _forward(Tag.DEFINITIONS, "retire_app", "POST /apps/{app}/retire", subjects.RETIRE_APP_REQUEST,
        role="admin"),
    _forward(Tag.DEFINITIONS, "give_back_app", "POST /apps/{app}/give-back",
        subjects.GIVE_BACK_APP_REQUEST, role="admin"),
)  # fmt: skip
