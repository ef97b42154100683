"""What a scheduler tells the dispatcher, told by a test."""

from uuid import UUID, uuid4

from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import RetryPolicy, WorkCancelRequested, WorkQueued
from headway_jetstream_kit import Broker, Stored
from headway_jetstream_kit.publishing import publish

RETRY = RetryPolicy(attempts=3, interval_seconds=0.1)


class Teller:
    """Publishes as a scheduler would."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def queue(self, job: str, **fields) -> UUID:
        """Queue work without a manifest; returns its id."""
        work = fields.pop("work", None) or uuid4()
        given = {"cause": f"test:{work}", "queued_at": utc_now(), "retry": RETRY}
        await self._tell(WorkQueued(work=work, group="ops", job=job, **{**given, **fields}))
        return work

    async def cancel(self, work: UUID, reason: str = "asked") -> None:
        """Ask for work to end early."""
        await self._tell(
            WorkCancelRequested(work=work, group="ops", reason=reason, requested_at=utc_now())
        )

    async def _tell(self, data) -> None:
        body = encode(event(data, id=uuid4(), source="test", subject="x", time=utc_now()))
        assert isinstance(await publish(self._broker, subjects.work("ops"), body), Stored)
