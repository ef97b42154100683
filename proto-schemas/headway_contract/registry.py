"""Every type on the wire, for the generators and for whoever decodes."""

from msgspec import Struct

from headway_contract import control, healing, lifecycle, orders, scheduling, settled, work
from headway_contract.envelope import EventData

EVENTS: tuple[type[EventData], ...] = (
    work.WorkQueued,
    work.GroupChanged,
    work.WorkCancelRequested,
    work.WorkBroughtForward,
    work.ManifestPruned,
    orders.RunDispatched,
    lifecycle.LeaseClaimed,
    lifecycle.LeaseRenewed,
    lifecycle.LeaseRevoked,
    lifecycle.RunStarted,
    lifecycle.RunActivated,
    lifecycle.RunCompleted,
    lifecycle.RunFailed,
    lifecycle.RunCancelled,
    settled.WorkSettled,
    settled.DeadLetterCreated,
    settled.DeadLetterRetried,
    settled.DeadLetterAcknowledged,
    settled.ActivationRequested,
    settled.PruneConfirmed,
)

CONTROL: dict[str, type[Struct]] = {
    "heartbeat.request": control.Heartbeat,
    "heartbeat.reply": control.HeartbeatReply,
    "cancel.push": control.CancelPush,
    "lease.question": control.LeaseQuestion,
    "lease.answer": control.LeaseAnswer,
    "reconcile.question": healing.ReconcileQuestion,
    "reconcile.answer": healing.ReconcileAnswer,
    "manifests.question": scheduling.ManifestsQuestion,
    "manifests.answer": scheduling.ManifestsAnswer,
    "manifest.question": scheduling.ManifestQuestion,
    "manifest.answer": scheduling.ManifestAnswer,
    "groups.question": scheduling.GroupsQuestion,
    "groups.answer": scheduling.GroupsAnswer,
    "preview.question": scheduling.PreviewQuestion,
    "preview.answer": scheduling.PreviewAnswer,
    "explain.question": scheduling.ExplainQuestion,
    "explain.answer": scheduling.ExplainAnswer,
    "ledger.question": scheduling.LedgerQuestion,
    "ledger.answer": scheduling.LedgerAnswer,
    "activation.question": scheduling.ActivationQuestion,
    "activation.answer": scheduling.ActivationAnswer,
    "apply.request": scheduling.ApplyRequest,
    "apply.answer": scheduling.ApplyAnswer,
    "change.request": scheduling.ChangeRequest,
    "change_group.request": scheduling.ChangeGroupRequest,
    "trigger.request": scheduling.TriggerRequest,
    "trigger.answer": scheduling.TriggerAnswer,
    "delete.request": scheduling.DeleteRequest,
    "changed.answer": scheduling.Changed,
}
