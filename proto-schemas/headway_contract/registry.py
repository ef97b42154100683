"""Every type on the wire."""

from types import ModuleType

from msgspec import Struct

from headway_contract import dead_letters as letters
from headway_contract import (
    definitions,
    lifecycle,
    manifests,
    notifications,
    operations,
    orders,
    reconcile,
    settled,
    subjects,
    work,
    work_queue,
    worker_protocol,
)
from headway_contract.envelope import EventData, register
from headway_contract.fields import Changed


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

# The types of each request on core NATS and of its answer, by subject.
REQUESTS: dict[str, tuple[type[Struct], type[Struct]]] = {
    subjects.HEARTBEAT: (worker_protocol.Heartbeat, worker_protocol.HeartbeatReply),
    subjects.WITNESS: (worker_protocol.Heartbeat, worker_protocol.HeartbeatReply),
    subjects.LEASE_QUESTION: (worker_protocol.LeaseQuestion, worker_protocol.LeaseAnswer),
    subjects.RECONCILE_QUESTION: (reconcile.ReconcileQuestion, reconcile.ReconcileAnswer),
    subjects.RETRY_REQUEST: (letters.RetryRequest, letters.LettersChanged),
    subjects.ACKNOWLEDGE_REQUEST: (letters.AcknowledgeRequest, letters.LettersChanged),
    subjects.BEGIN_CANARY_REQUEST: (letters.BeginCanaryRequest, letters.CanaryStatus),
    subjects.STOP_CANARY_REQUEST: (letters.StopCanaryRequest, letters.CanaryStatus),
    subjects.CANCEL_REQUEST: (work_queue.CancelRequest, work_queue.CancelAnswer),
    subjects.DRAIN_REQUEST: (operations.DrainRequest, operations.DrainAnswer),
    subjects.DISPATCHER_SETTINGS_QUESTION: (operations.SettingsQuestion, operations.SettingsAnswer),
    subjects.EXPLAIN_WORK_QUESTION: (work_queue.WorkQuestion, work_queue.ExplainWorkAnswer),
    subjects.PREVIEW_QUESTION: (manifests.PreviewQuestion, manifests.PreviewAnswer),
    subjects.EXPLAIN_QUESTION: (manifests.ExplainQuestion, manifests.ExplainAnswer),
    subjects.LEDGER_QUESTION: (manifests.LedgerQuestion, manifests.LedgerAnswer),
    subjects.ACTIVATION_QUESTION: (manifests.ActivationQuestion, manifests.ActivationAnswer),
    subjects.PLAN_QUESTION: (definitions.ApplyRequest, definitions.ApplyAnswer),
    subjects.APPLY_REQUEST: (definitions.ApplyRequest, definitions.ApplyAnswer),
    subjects.CHANGE_REQUEST: (manifests.ChangeRequest, Changed),
    subjects.CHANGE_MANY_REQUEST: (manifests.ChangeManyRequest, manifests.ManyChanged),
    subjects.NOTIFY_TEST_REQUEST: (operations.NotifyTestRequest, Changed),
    subjects.SCHEDULER_SETTINGS_QUESTION: (operations.SettingsQuestion, operations.SettingsAnswer),
    subjects.PAUSE_REQUEST: (manifests.PauseRequest, manifests.PauseAnswer),
    subjects.RESUME_REQUEST: (manifests.ResumeRequest, manifests.ResumeAnswer),
    subjects.CHANGE_GROUP_REQUEST: (operations.ChangeGroupRequest, Changed),
    subjects.CHANGE_JOB_REQUEST: (operations.ChangeJobRequest, Changed),
    subjects.TRIGGER_REQUEST: (manifests.TriggerRequest, manifests.TriggerAnswer),
    subjects.BACKFILL_REQUEST: (manifests.BackfillRequest, manifests.BackfillAnswer),
    subjects.RENAME_APP_REQUEST: (definitions.RenameAppRequest, Changed),
    subjects.RETIRE_APP_REQUEST: (definitions.RetireAppRequest, Changed),
    subjects.GIVE_BACK_APP_REQUEST: (definitions.GiveBackAppRequest, Changed),
    subjects.DELETE_REQUEST: (manifests.DeleteRequest, Changed),
    subjects.ENQUEUE_REQUEST: (work_queue.EnqueueRequest, work_queue.EnqueueAnswer),
    subjects.DISMISS_REQUEST: (work_queue.DismissRequest, Changed),
    subjects.INPUT_QUESTION: (work_queue.InputQuestion, work_queue.InputAnswer),
    subjects.ORIGIN_QUESTION: (work_queue.WorkQuestion, work_queue.OriginAnswer),
    subjects.CANCEL_OUTSTANDING_REQUEST: (
        work_queue.CancelOutstandingRequest,
        work_queue.CancelAnswer,
    ),
}
