"""The wake-ups of passes that continue what another pass or a request began."""

from collections import deque

from headway_decisions.capacity.packing import RECENT_RUNS
from headway_relay import Handover
from headway_service_kit.passes import Wakeup
from msgspec import Struct, field


class RunDurations(Wakeup):
    """Wakes the pass that stores durations, and collects those of recent runs by job."""

    def __init__(self) -> None:
        super().__init__()
        self._recent: dict[str, deque[float]] = {}
        self._changed: set[str] = set()

    def add(self, durations: dict[str, list[float]]) -> None:
        """Add the durations of completed runs."""
        for job, seconds in durations.items():
            self._recent.setdefault(job, deque(maxlen=RECENT_RUNS)).extend(seconds)
        if durations:
            self._changed.update(durations)
            self.call()

    def take(self) -> list[tuple[str, list[float]]]:
        """Return the recent durations of each job that has new ones."""
        changed, self._changed = sorted(self._changed), set()
        return [(job, list(self._recent[job])) for job in changed]


class Wakeups(Struct, frozen=True, kw_only=True):
    """The wake-up of each pass that others call."""

    gate: Wakeup = field(default_factory=Wakeup)
    relay: Handover = field(default_factory=Handover)
    waits: Wakeup = field(default_factory=Wakeup)
    durations: RunDurations = field(default_factory=RunDurations)
    expiry: Wakeup = field(default_factory=Wakeup)
    cancels: Wakeup = field(default_factory=Wakeup)
    prunes: Wakeup = field(default_factory=Wakeup)
    canaries: Wakeup = field(default_factory=Wakeup)
    consumers: Wakeup = field(default_factory=Wakeup)
