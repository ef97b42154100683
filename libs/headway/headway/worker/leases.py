"""Leases: claim them, and publish their events under the broker's fence.

After a refused or unanswered publish the worker asks the dispatcher who holds the lease: it never
guesses, and never acknowledges an order that may still need it. A lease that has ended is kept for
a while. If its order is delivered again, the acknowledgement or the broker's storage was lost, and
the worker publishes the events again instead of running the body again.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import jitter, monotonic, new_id, utc_now
from headway_contract import Event, EventData, encode, event, subjects
from headway_contract.lifecycle import LeaseClaimed, LeaseRenewed, RunStarted
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.worker_protocol import LeaseAnswer, LeaseQuestion
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, Message, NoAnswer, Refused, Stored
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.publish import Answer, publish
from headway_jetstream_kit.pull import ack, nak
from headway_tracing import CONTEXTS_APART, span, traceparent
from headway_tracing.log import get_logger

log = get_logger(__name__)

Claim = Literal["mine", "gone", "undecided"]
Published = Literal["stored", "lost"]

# Below the ack wait of an order, so that an undecided claim is handed back in time.
CLAIM_PATIENCE = 20.0
_HEADERS = 4096

# Bounds of the finished leases: how many with their events, how many bytes, and how many ids.
_MOST_LEASES = 1000
_MOST_BYTES = 16 * 1024**2
_MOST_NAMES = 10_000


@dataclass(eq=False, repr=False)  # the token of an order is secret
class Lease:
    """One lease, from the order to its last event."""

    broker: Broker
    order: RunDispatched
    worker: str
    nonce: str
    host: str
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

    async def claim(self) -> Claim:
        """Claim the lease; for a lease of one run, report its start in the same message."""
        runs = CONTEXTS_APART.join(run.traceparent for run in self.order.runs if run.traceparent)
        with span("claim", parent=runs or None, lease=str(self.order.lease)) as current:
            claim = await self._claim()
            current.set_attribute("headway.claim", claim)
            return claim

    async def _claim(self) -> Claim:
        claimed = LeaseClaimed(**self.credentials, host=self.host)
        events = [self.event(claimed, traceparent=traceparent())]
        if len(self.order.runs) == 1:
            events.append(self.started(self.order.runs[0]))
        deadline, expected = monotonic() + CLAIM_PATIENCE, 0
        while monotonic() < deadline:
            answer = await self._send(events, expected=expected)
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
            for part in self._parts(list(events)):
                if await self._publish_part(part) == "lost":
                    return "lost"
            return "stored"

    async def _publish_part(self, events: list[Event]) -> Published:
        pause = 0.2
        while not self.lost:
            answer = await self._send(events, expected=self._sequence)
            if isinstance(answer, Stored):
                self._note_stored(events, answer.sequence)
                return "stored"
            log.info("event not stored", lease=self.order.lease, answer=answer)
            if await self._resolve(events):
                return "stored"
            await asyncio.sleep(pause * (1 + jitter(0.2)))
            pause = min(pause * 2, 5.0)
        return "lost"

    async def renew(self) -> Published:
        """Publish that the lease is still held."""
        return await self.publish(self.event(LeaseRenewed(**self.credentials)))

    def started(self, run: OrderedRun, *, at: datetime | None = None) -> Event:
        """Return the start event of a run; it starts now if no time is given."""
        started = RunStarted(**self.credentials, run=run.run)
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
        """Ask what a refusal or a missing answer meant; return whether the events are stored."""
        holder = await self._ask()
        match holder.answer:
            case "mine":
                if holder.sequence < self._sequence:
                    # The stream went back: later messages are gone.
                    return await self._republish(events, expected=holder.sequence)
                if any(event.id in holder.stored for event in events):
                    self._note_stored(events, holder.sequence)
                    return True
                self._sequence = holder.sequence
            case "another" | "ended":
                self.lost = True
                return any(event.id in holder.stored for event in events)
            case "nothing_stored":
                return await self._republish(events, expected=holder.sequence)
            case _:
                log.debug("lease is undecided", lease=self.order.lease, reason=holder.reason)
        return False

    async def restore(self) -> bool:
        """Republish events that the stream lost; return whether nothing is missing."""
        async with self._publish_lock:
            holder = await self._ask()
            went_back = holder.answer == "mine" and holder.sequence < self._sequence
            if holder.answer == "nothing_stored" or went_back:
                return await self._republish([], expected=holder.sequence)
            return holder.answer in ("mine", "another", "ended")

    def forget_runs(self) -> None:
        """Release the runs and their inputs; keep the published events."""
        self.order = msgspec.structs.replace(self.order, runs=[])

    async def _republish(self, events: list[Event], *, expected: int) -> bool:
        """Publish every event of the lease again, with the same ids."""
        for part in self._parts([*self._published, *events]):
            answer = await self._send(part, expected=expected)
            if not isinstance(answer, Stored):
                return False
            expected = answer.sequence
        self._note_stored(events, expected)
        return True

    def _parts(self, events: list[Event]) -> list[list[Event]]:
        """Split events into as few messages as the broker accepts; each of them is fenced."""
        most = self.broker.client.max_payload - _HEADERS
        parts: list[list[Event]] = [[]]
        size = 0
        for published in events:
            length = len(encode(published)) + 1
            if parts[-1] and size + length > most:
                parts.append([])
                size = 0
            parts[-1].append(published)
            size += length
        return parts

    def _note_stored(self, events: list[Event], sequence: int) -> Literal["mine"]:
        if any(isinstance(event.data, LeaseRenewed) for event in events):
            # One renewal is enough to republish.
            self._published = [
                event for event in self._published if not isinstance(event.data, LeaseRenewed)
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

    async def _send(self, events: list[Event], *, expected: int) -> Answer:
        subject = subjects.event(self.order.lease, self.worker)
        headers = subjects.fence(self.order.lease, expected)
        if events[-1].traceparent:
            headers[subjects.TRACEPARENT_HEADER] = events[-1].traceparent
        body = encode(events)
        self.size += len(body)
        answer = await publish(self.broker, subject, body, headers=headers)
        if isinstance(answer, NoAnswer):
            log.warning("publish was not answered", lease=self.order.lease, error=answer.why)
        return answer


class FinishedLeases:
    """The leases that ended last in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # With the size that it had when it was added.
        self._leases: OrderedDict[UUID, tuple[Lease, int]] = OrderedDict()
        self._names: OrderedDict[UUID, None] = OrderedDict()
        self._bytes = 0

    def __contains__(self, lease: UUID) -> bool:
        return lease in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, lease: Lease) -> None:
        """Keep a lease, and forget the oldest if there are too many."""
        name = lease.order.lease
        self._names[name] = None
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        lease.forget_runs()
        self._leases[name] = lease, lease.size
        self._bytes += lease.size
        while len(self._leases) > _MOST_LEASES or self._bytes > _MOST_BYTES:
            _, (_, size) = self._leases.popitem(last=False)
            self._bytes -= size

    async def handle_redelivery(self, message: Message, name: UUID) -> None:
        """Republish missing events of a lease whose order came again, then acknowledge it."""
        kept = self._leases.get(name)
        if kept is None or await kept[0].restore():
            await ack(self._broker, [message])
        else:
            await nak(self._broker, message, delay=1 + jitter())
