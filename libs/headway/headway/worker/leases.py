"""Leases: claim them, and publish their events under the broker's fence.

After a refused or unanswered publish the worker asks the dispatcher who holds the lease: it never
guesses, and never acknowledges an order that may still need it.

The outcomes of a lease of several runs are published together, at its end or after a short time, so
short runs cost few messages. A start may therefore not be stored yet when its body already runs: if
the dispatcher takes such a lease away, it orders all of its runs again, one by one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from headway_clock import jitter, monotonic, new_id, utc_now
from headway_contract import Event, EventData, encode, event, lifecycle, subjects
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.worker_protocol import LeaseAnswer, LeaseQuestion
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, NoAnswer, Refused, Stored
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.publish import Answer, publish
from headway_jetstream_kit.tasks import end
from headway_tracing import CONTEXTS_APART, span, traceparent
from headway_tracing.log import get_logger

from headway.worker.outcomes import Cancelled, Outcome

log = get_logger(__name__)

Claim = Literal["mine", "gone", "undecided"]
Published = Literal["stored", "lost"]

# Below the ack wait of an order, so that an undecided claim is handed back in time.
CLAIM_PATIENCE = 20.0
_HEADERS = 4096

# How long an event of a lease of several runs may wait for others: the first, and this much for
# each lease that the worker runs. So a worker publishes about a hundred messages a second.
LINGER_SECONDS = 0.05
_LINGER_OF_EACH = 0.01
# Completed runs above this size get another event.
_LARGE = 128 * 1024
# A bound of the size of a completed run without its output and its trace context.
_COMPLETED_RUN = 256


class _Message(NamedTuple):
    """Events that are published together, and their encoding."""

    events: list[Event]
    body: bytes


@dataclass(eq=False, repr=False)  # the token of an order is secret
class Lease:
    """One lease, from the order to its last event."""

    broker: Broker
    order: RunDispatched
    worker: str
    nonce: str
    host: str
    # Called once another owner has the lease.
    on_lost: Callable[[], None] = lambda: None
    # Runs that ended before this worker claimed the lease.
    ended_runs: set[UUID] = field(default_factory=set)
    # Bytes published for the lease, repeats included.
    size: int = 0
    lost: bool = False
    # When the last message was stored, by the monotonic clock.
    published_at: float = field(default_factory=monotonic)
    _sequence: int = 0
    _published: list[Event] = field(default_factory=list)
    # Each message names its predecessor, so only one can be in flight.
    _publish_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._subject = subjects.event(self.order.lease, self.worker)

    async def claim(self) -> Claim:
        """Claim the lease; for a lease of one run, report its start in the same message."""
        runs = CONTEXTS_APART.join(run.traceparent for run in self.order.runs if run.traceparent)
        with span("claim", parent=runs or None, lease=str(self.order.lease)) as current:
            claim = await self._claim()
            current.set_attribute("headway.claim", claim)
            return claim

    async def _claim(self) -> Claim:
        claimed = lifecycle.LeaseClaimed(**self.credentials, host=self.host)
        events = [self.event(claimed, traceparent=traceparent())]
        if len(self.order.runs) == 1:
            events.append(self.started(self.order.runs[0]))
        message = _Message(events, encode(events))
        deadline, expected = monotonic() + CLAIM_PATIENCE, 0
        while monotonic() < deadline:
            answer = await self._send(message, expected=expected)
            if isinstance(answer, Stored):
                return self._note_stored(events, answer.sequence)
            if isinstance(answer, Refused) and answer.err_code != subjects.WRONG_SEQUENCE:
                return "undecided"
            holder = await self._ask()
            match holder.answer:
                case "mine":
                    self.ended_runs = set(holder.ended_runs)
                    return self._note_stored(events, holder.sequence)
                case "another" | "ended":
                    return "gone"
                case "nothing_stored" if holder.sequence != expected:
                    # Only refused messages are stored there: claim behind them at once.
                    expected = holder.sequence
                case _:
                    await asyncio.sleep(0.2 + jitter(0.2))
        return "undecided"

    async def publish(self, *events: Event) -> Published:
        """Publish events of this lease; return once they are stored or the lease is lost."""
        async with self._publish_lock:
            for message in self._messages(list(events)):
                if not await self._is_stored(message):
                    return "lost"
            return "stored"

    async def _is_stored(self, message: _Message) -> bool:
        """Publish a message until it is stored; return false if the lease is lost."""
        pause = 0.2
        while not self.lost:
            answer = await self._send(message, expected=self._sequence)
            if isinstance(answer, Stored):
                self._note_stored(message.events, answer.sequence)
                return True
            log.info("event not stored", lease=self.order.lease, answer=answer)
            if await self._resolve(message.events):
                return True
            await asyncio.sleep(pause * (1 + jitter(0.2)))
            pause = min(pause * 2, 5.0)
        return False

    def lose(self) -> None:
        """Publish nothing more, because another owner has the lease."""
        self.lost = True
        self.on_lost()

    async def renew(self) -> Published:
        """Publish that the lease is still held."""
        return await self.publish(self.event(lifecycle.LeaseRenewed(**self.credentials)))

    def started(self, run: OrderedRun, *, at: datetime | None = None) -> Event:
        """Return the start event of a run; it starts now if no time is given."""
        started = lifecycle.RunStarted(**self.credentials, run=run.run)
        return self.event(started, traceparent=run.traceparent, at=at)

    def event(
        self, data: EventData, *, traceparent: str | None = None, at: datetime | None = None
    ) -> Event:
        """Put data of this lease into an envelope."""
        subject = getattr(data, "run", None) or self.order.lease
        source = f"worker/{self.worker}"
        return event(
            data,
            id=new_id(),
            source=source,
            subject=subject,
            time=at or utc_now(),
            traceparent=traceparent,
        )

    @property
    def credentials(self) -> dict[str, Any]:
        """The fields that every event of the lease carries."""
        return {"lease": self.order.lease, "token": self.order.token, "nonce": self.nonce}

    async def _resolve(self, events: list[Event]) -> bool:
        """Ask what is stored, and republish lost events; return whether these are stored."""
        holder = await self._ask()
        is_stored = not events or any(event.id in holder.stored for event in events)
        match holder.answer:
            case "mine":
                if holder.sequence < self._sequence:
                    # The stream went back: later messages are gone.
                    return await self._republish(events, expected=holder.sequence)
                self._sequence = holder.sequence
                if events and is_stored:
                    self._note_stored(events, holder.sequence)
                return is_stored
            case "another" | "ended":
                self.lose()
                return is_stored
            case "nothing_stored":
                return await self._republish(events, expected=holder.sequence)
            case _:
                log.debug("lease is undecided", lease=self.order.lease, reason=holder.reason)
        return False

    async def restore(self) -> bool:
        """Republish events that the stream lost; return whether nothing is missing."""
        async with self._publish_lock:
            return await self._resolve([])

    def forget_runs(self) -> None:
        """Release the runs, their inputs and their runner; keep the published events."""
        self.order = msgspec.structs.replace(self.order, runs=[])
        self.on_lost = lambda: None

    async def _republish(self, events: list[Event], *, expected: int) -> bool:
        """Publish every event of the lease again, with the same ids."""
        for message in self._messages([*self._published, *events]):
            answer = await self._send(message, expected=expected)
            if not isinstance(answer, Stored):
                return False
            expected = answer.sequence
        self._note_stored(events, expected)
        return True

    def _messages(self, events: list[Event]) -> list[_Message]:
        """Encode events as messages that the broker accepts; each of them is fenced."""
        body = encode(events)
        if len(body) <= self.broker.client.max_payload - _HEADERS or len(events) == 1:
            return [_Message(events, body)]
        middle = len(events) // 2
        return [*self._messages(events[:middle]), *self._messages(events[middle:])]

    def _note_stored(self, events: list[Event], sequence: int) -> Literal["mine"]:
        if any(isinstance(event.data, lifecycle.LeaseRenewed) for event in events):
            # One renewal is enough to republish.
            self._published = [
                event
                for event in self._published
                if not isinstance(event.data, lifecycle.LeaseRenewed)
            ]
        self._published += events
        self._sequence = sequence
        self.published_at = monotonic()
        return "mine"

    async def _ask(self) -> LeaseAnswer:
        question = LeaseQuestion(lease=self.order.lease, worker=self.worker, nonce=self.nonce)
        try:
            return await ask(self.broker, subjects.LEASE_QUESTION, question, LeaseAnswer, timeout=3)
        except RequestFailed as error:
            return LeaseAnswer(answer="undecided", reason=str(error))

    async def _send(self, message: _Message, *, expected: int) -> Answer:
        headers = subjects.fence(self.order.lease, expected)
        if context := message.events[-1].traceparent:
            headers[subjects.TRACEPARENT_HEADER] = context
        self.size += len(message.body)
        answer = await publish(self.broker, self._subject, message.body, headers=headers)
        if isinstance(answer, NoAnswer):
            log.warning("publish was not answered", lease=self.order.lease, error=answer.why)
        return answer


class LeaseEvents:
    """Collects the events of a lease's runs, and publishes them together."""

    def __init__(self, lease: Lease, count_leases: Callable[[], int]) -> None:
        self._lease = lease
        # How many leases the worker runs.
        self._count_leases = count_leases
        # The start of a single run is in its claim.
        self._is_shared = len(lease.order.runs) > 1
        # The run whose body runs, until its start is reported.
        self._unreported: OrderedRun | None = None
        # When the body of the last run began.
        self.began = 0.0
        self._began_at = utc_now()
        self._pending: list[Event] = []
        self._completed: list[lifecycle.CompletedRun] = []
        self._completed_bytes = 0
        self._flush_lock = asyncio.Lock()
        self._flusher: asyncio.Task[None] | None = None

    def begin(self, ordered: OrderedRun) -> None:
        """Note that a body begins; its start is reported if it does not end soon."""
        self.began, self._began_at = monotonic(), utc_now()
        if self._is_shared:
            self._unreported = ordered
            self._flush_soon()

    async def end(
        self, ordered: OrderedRun, outcome: Outcome, seconds: float, context: str | None
    ) -> None:
        """Add the outcome of the run whose body ended."""
        unreported, self._unreported = self._unreported, None
        if isinstance(outcome, Failure | Cancelled):
            if unreported is not None:
                self._pending.append(self._lease.started(ordered, at=self._began_at))
            self.add(ordered, outcome, context)
        elif self._is_shared:
            size = _COMPLETED_RUN + len(bytes(outcome)) + len(context or "")
            if self._completed_bytes + size > _LARGE:
                await self.flush()
            completed = lifecycle.CompletedRun(
                run=ordered.run,
                started_at=self._began_at,
                seconds=seconds,
                output=outcome,
                traceparent=context,
            )
            self._completed.append(completed)
            self._completed_bytes += size
            self._flush_soon()
        else:
            data = lifecycle.RunCompleted(
                **self._lease.credentials, run=ordered.run, output=outcome, seconds=seconds
            )
            self._pending.append(self._lease.event(data, traceparent=context))

    def add(self, ordered: OrderedRun, outcome: Failure | Cancelled, context: str | None) -> None:
        """Add the outcome of a run that did not complete."""
        fields = {**self._lease.credentials, "run": ordered.run}
        data: lifecycle.RunEvent
        if isinstance(outcome, Cancelled):
            data = lifecycle.RunCancelled(**fields, reason=outcome.reason)
        else:
            data = lifecycle.RunFailed(**fields, failure=outcome)
        self._pending.append(self._lease.event(data, traceparent=context))
        self._flush_soon()

    async def flush(self) -> None:
        """Publish everything that waits, after a publish in progress."""
        async with self._flush_lock:
            if events := self._take():
                await self._lease.publish(*events)

    async def close(self) -> None:
        """End the task that publishes; everything is flushed, or will not be."""
        if self._flusher is not None:
            await end([self._flusher])

    def _flush_soon(self) -> None:
        # The only outcome of a lease is published at its end.
        if self._is_shared and (self._flusher is None or self._flusher.done()):
            self._flusher = asyncio.create_task(self._keep_flushing())

    async def _keep_flushing(self) -> None:
        while self._unreported is not None or self._pending or self._completed:
            await asyncio.sleep(max(LINGER_SECONDS, self._count_leases() * _LINGER_OF_EACH))
            await self.flush()

    def _take(self) -> list[Event]:
        """Return everything that waits: outcomes, and the start of a body that runs for a while."""
        events, self._pending = self._pending, []
        if self._completed:
            completed, self._completed, self._completed_bytes = self._completed, [], 0
            data = lifecycle.RunsCompleted(**self._lease.credentials, runs=completed)
            events.append(self._lease.event(data, traceparent=completed[-1].traceparent))
        # The end of a short run reports its start.
        if self._unreported is not None and monotonic() - self.began >= LINGER_SECONDS:
            events.append(self._lease.started(self._unreported, at=self._began_at))
            self._unreported = None
        return events
