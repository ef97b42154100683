"""Every type on the wire, for the generators and for whoever decodes."""

from msgspec import Struct

from headway_contract import control, lifecycle, orders, settled, work
from headway_contract.envelope import EventData

EVENTS: tuple[type[EventData], ...] = (
    work.WorkQueued,
    work.GroupChanged,
    orders.RunDispatched,
    lifecycle.LeaseClaimed,
    lifecycle.LeaseRenewed,
    lifecycle.LeaseRevoked,
    lifecycle.RunStarted,
    lifecycle.RunCompleted,
    lifecycle.RunFailed,
    lifecycle.RunCancelled,
    settled.WorkSettled,
    settled.DeadLetterCreated,
)

CONTROL: dict[str, type[Struct]] = {
    "heartbeat.request": control.Heartbeat,
    "heartbeat.reply": control.HeartbeatReply,
    "cancel.push": control.CancelPush,
    "lease.question": control.LeaseQuestion,
    "lease.answer": control.LeaseAnswer,
    "manifests.question": control.ManifestsQuestion,
    "manifests.answer": control.ManifestsAnswer,
}
