"""Log entries about failed runs, with what follows; transactions note them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from headway_clock import monotonic
from headway_contract.lifecycle import Failure
from headway_decisions.runs.report_limits import FloodLimit
from headway_tracing.log import EXCEPTION, get_logger
from msgspec import Struct

log = get_logger(__name__)


class RunFailure(Struct, frozen=True, kw_only=True):
    """A failed run. It is retried after `next_seconds`, or its work has ended for a reason."""

    run: UUID
    work: UUID
    manifest: str | None
    job: str
    worker: str | None
    failure: Failure
    attempt: int
    attempts: int
    # Whether the run counts as an attempt.
    counted: bool
    next_seconds: float | None
    reason: str
    dead_letter: UUID | None

    @property
    def follows(self) -> str:
        """Say what follows."""
        so_far = f"attempt {self.attempt} of {self.attempts}"
        so_far = so_far if self.counted else f"not counted as an attempt ({self.reason})"
        if self.next_seconds is not None:
            wait = round(self.next_seconds)
            return f"{so_far}, next {f'in {wait} s' if wait else 'at once'}"
        if self.dead_letter is not None:
            letter = self.dead_letter
            return f"{so_far}, dead letter {letter}: headway dead-letters retry {letter}"
        return f"{so_far}, cancelled: {self.reason}"


class FailureLog:
    """Writes an entry for each failed run, but not for a flood of them of one job."""

    def __init__(self) -> None:
        self._limit = FloodLimit(burst=100, per_second=5)
        self._suppressed: Counter[str] = Counter()

    def write(self, facts: Iterable[Any]) -> None:
        """Log the failed runs among the facts that were noted in a committed transaction."""
        for fact in facts:
            if isinstance(fact, RunFailure):
                self._write(fact)

    def _write(self, failed: RunFailure) -> None:
        if not self._limit.admits(failed.job, monotonic()):
            self._suppressed[failed.job] += 1
            return
        fields = {
            "job": failed.job,
            "failure": failed.failure.summary,
            "follows": failed.follows,
            "manifest": failed.manifest,
            "run": failed.run,
            "work": failed.work,
            "worker": failed.worker,
            "suppressed": self._suppressed.pop(failed.job, None),
            EXCEPTION: failed.failure.stack or None,
        }
        stated = {name: value for name, value in fields.items() if value is not None}
        # A run that does not count was handed back: its job did not fail.
        (log.error if failed.counted else log.info)("run failed", **stated)
