"""What a job's body knows about its run."""

import logging
import threading
from datetime import datetime
from uuid import UUID

from headway_contract.orders import OrderedRun


class Context:
    """Handed to a job's body as its first argument."""

    def __init__(self, ordered: OrderedRun, job: str) -> None:
        self._ordered = ordered
        self._cancelled = threading.Event()
        self.job = job
        self.log = logging.getLogger(f"headway.job.{job}")

    @property
    def run(self) -> UUID:
        """The id of this attempt. Hand it to other systems as an idempotency key of the attempt."""
        return self._ordered.run

    @property
    def work(self) -> UUID:
        """The work that this run is an attempt at; the same over all attempts."""
        return self._ordered.work

    @property
    def manifest(self) -> str | None:
        """The id of the manifest, if the work has one."""
        return self._ordered.manifest

    @property
    def attempt(self) -> int:
        """Which counted attempt this is, from 1."""
        return self._ordered.attempt

    @property
    def attempts(self) -> int:
        """How many counted attempts there may be."""
        return self._ordered.attempts

    @property
    def due_at(self) -> datetime | None:
        """The time for which the schedule fired, if a schedule did."""
        return self._ordered.due_at

    @property
    def cause(self) -> str:
        """Why this work exists."""
        return self._ordered.cause

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop. Long plain functions should look at it."""
        return self._cancelled.is_set()

    def ask_to_stop(self) -> None:
        """Called by the worker when the run should end early."""
        self._cancelled.set()
