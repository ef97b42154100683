"""The wake-ups of passes that continue what another pass or a request began."""

from headway_relay import Handover
from headway_service_kit.passes import Wakeup
from msgspec import Struct, field


class Wakeups(Struct, frozen=True, kw_only=True):
    """The wake-up of each pass that others call."""

    gate: Wakeup = field(default_factory=Wakeup)
    relay: Handover = field(default_factory=Handover)
    waits: Wakeup = field(default_factory=Wakeup)
    expiry: Wakeup = field(default_factory=Wakeup)
    cancels: Wakeup = field(default_factory=Wakeup)
    prunes: Wakeup = field(default_factory=Wakeup)
    canaries: Wakeup = field(default_factory=Wakeup)
    consumers: Wakeup = field(default_factory=Wakeup)
