"""The wake-ups of passes that continue what another pass or a request began."""

from headway_relay import Handover
from headway_service_kit.passes import Wakeup
from msgspec import Struct, field


class EndedJobs(Wakeup):
    """Wakes the pass that measures durations, and collects the jobs whose runs have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: set[str] = set()

    def add(self, jobs: set[str]) -> None:
        """Note jobs whose runs have ended."""
        if jobs:
            self._jobs |= jobs
            self.call()

    def take(self) -> list[str]:
        """Return the jobs, once."""
        jobs, self._jobs = sorted(self._jobs), set()
        return jobs


class Wakeups(Struct, frozen=True, kw_only=True):
    """The wake-up of each pass that others call."""

    gate: Wakeup = field(default_factory=Wakeup)
    relay: Handover = field(default_factory=Handover)
    waits: Wakeup = field(default_factory=Wakeup)
    ended_jobs: EndedJobs = field(default_factory=EndedJobs)
    expiry: Wakeup = field(default_factory=Wakeup)
    cancels: Wakeup = field(default_factory=Wakeup)
    prunes: Wakeup = field(default_factory=Wakeup)
    canaries: Wakeup = field(default_factory=Wakeup)
    consumers: Wakeup = field(default_factory=Wakeup)
