"""Every type on the wire."""

from types import ModuleType

from msgspec import Struct

from headway_contract import (
    dead_letters,
    definitions,
    fields,
    lifecycle,
    manifests,
    notifications,
    operations,
    orders,
    reconcile,
    settled,
    work,
    work_queue,
    worker_protocol,
)
from headway_contract.envelope import EventData, register


def _events_in(*modules: ModuleType) -> tuple[type[EventData], ...]:
    return tuple(
        struct
        for module in modules
        for struct in vars(module).values()
        if isinstance(struct, type) and issubclass(struct, EventData)
        if struct.type and struct.__module__ == module.__name__
    )


EVENTS = _events_in(work, orders, lifecycle, settled)
# Events for a webhook; no stream carries them.
NOTIFICATIONS = _events_in(notifications)
register(*EVENTS, *NOTIFICATIONS)

CONTROL: dict[str, type[Struct]] = {
    "heartbeat.request": worker_protocol.Heartbeat,
    "heartbeat.reply": worker_protocol.HeartbeatReply,
    "cancel.push": worker_protocol.CancelPush,
    "progress": worker_protocol.Progress,
    "lease.question": worker_protocol.LeaseQuestion,
    "lease.answer": worker_protocol.LeaseAnswer,
    "explain_work.question": work_queue.WorkQuestion,
    "explain_work.answer": work_queue.ExplainWorkAnswer,
    "origin.question": work_queue.WorkQuestion,
    "origin.answer": work_queue.OriginAnswer,
    "reconcile.question": reconcile.ReconcileQuestion,
    "reconcile.answer": reconcile.ReconcileAnswer,
    "preview.question": manifests.PreviewQuestion,
    "preview.answer": manifests.PreviewAnswer,
    "explain.question": manifests.ExplainQuestion,
    "explain.answer": manifests.ExplainAnswer,
    "ledger.question": manifests.LedgerQuestion,
    "ledger.answer": manifests.LedgerAnswer,
    "activation.question": manifests.ActivationQuestion,
    "activation.answer": manifests.ActivationAnswer,
    "apply.request": definitions.ApplyRequest,
    "apply.answer": definitions.ApplyAnswer,
    "change.request": manifests.ChangeRequest,
    "change_many.request": manifests.ChangeManyRequest,
    "change_many.answer": manifests.ManyChanged,
    "notify_test.request": operations.NotifyTestRequest,
    "drain.request": operations.DrainRequest,
    "drain.answer": operations.DrainAnswer,
    "settings.question": operations.SettingsQuestion,
    "settings.answer": operations.SettingsAnswer,
    "pause.request": manifests.PauseRequest,
    "pause.answer": manifests.PauseAnswer,
    "resume.request": manifests.ResumeRequest,
    "resume.answer": manifests.ResumeAnswer,
    "change_group.request": operations.ChangeGroupRequest,
    "change_job.request": operations.ChangeJobRequest,
    "trigger.request": manifests.TriggerRequest,
    "trigger.answer": manifests.TriggerAnswer,
    "backfill.request": manifests.BackfillRequest,
    "backfill.answer": manifests.BackfillAnswer,
    "delete.request": manifests.DeleteRequest,
    "rename_app.request": definitions.RenameAppRequest,
    "retire_app.request": definitions.RetireAppRequest,
    "give_back_app.request": definitions.GiveBackAppRequest,
    "enqueue.request": work_queue.EnqueueRequest,
    "enqueue.answer": work_queue.EnqueueAnswer,
    "dismiss.request": work_queue.DismissRequest,
    "changed.answer": fields.Changed,
    "input.question": work_queue.InputQuestion,
    "input.answer": work_queue.InputAnswer,
    "cancel_outstanding.request": work_queue.CancelOutstandingRequest,
    "retry.request": dead_letters.RetryRequest,
    "begin_canary.request": dead_letters.BeginCanaryRequest,
    "stop_canary.request": dead_letters.StopCanaryRequest,
    "canary_status.answer": dead_letters.CanaryStatus,
    "acknowledge.request": dead_letters.AcknowledgeRequest,
    "letters_changed.answer": dead_letters.LettersChanged,
    "cancel.request": work_queue.CancelRequest,
    "cancel.answer": work_queue.CancelAnswer,
}
