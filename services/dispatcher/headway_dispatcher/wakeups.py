"""The passes that continue what another pass or a request began."""

from headway_relay import Handover
from headway_service_kit.passes import Wakeup
from msgspec import Struct


class Wakeups(Struct, frozen=True, kw_only=True):
    """The wake-up of each pass that others call."""

    gate: Wakeup
    relay: Handover
    cancels: Wakeup
    prunes: Wakeup
    canaries: Wakeup
    consumers: Wakeup
