"""A lease: claiming it, and speaking for it under the fence.

Every publish has three ends, and each of them is handled: stored, refused, unknown. After
a refusal or an unknown end the dispatcher is asked whose the lease is; a worker never
guesses, and never acknowledges an order that may still need it.
"""

import asyncio
import logging
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import jitter, monotonic, new_id, utc_now
from headway_contract import Event, EventData, encode, event, subjects
from headway_contract.control import LeaseAnswer, LeaseQuestion
from headway_contract.lifecycle import LeaseClaimed, LeaseRenewed, RunStarted
from headway_contract.orders import RunDispatched
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, NoAnswer, Refused, Stored
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.publish import Answer, publish
from headway_tracing import CONTEXTS_APART, span, traceparent

logger = logging.getLogger(__name__)

Claim = Literal["mine", "gone", "undecided"]
Said = Literal["stored", "lost"]

# Below the ack wait of an order, so that an undecided claim is handed back in time.
CLAIM_PATIENCE = 20.0
_HEADERS = 4096


class Lease:
    """One lease, from the order to its last word."""

    def __init__(
        self, broker: Broker, order: RunDispatched, *, worker: str, nonce: str, host: str
    ) -> None:
        self.order = order
        self._broker = broker
        self.worker = worker
        self._nonce = nonce
        self._host = host
        self._sequence = 0
        self._told: list[Event] = []
        # Runs that somebody has ended before we claimed the lease.
        self.ended_runs: set[UUID] = set()
        # How many bytes were published for it, repeats included.
        self.size = 0
        # Each word names its predecessor, so only one can be on its way.
        self._speaking = asyncio.Lock()
        self.lost = False
        # When its last message was stored, by the monotonic clock.
        self.spoke_at = monotonic()

    async def claim(self) -> Claim:
        """Take the lease; for a lease of one run, its start is told in the same breath."""
        runs = CONTEXTS_APART.join(run.traceparent for run in self.order.runs if run.traceparent)
        with span("claim", parent=runs or None, lease=str(self.order.lease)) as current:
            claim = await self._claim()
            current.set_attribute("headway.claim", claim)
            return claim

    async def _claim(self) -> Claim:
        claimed = LeaseClaimed(**self.credentials, host=self._host)
        events = [self.event(claimed, traceparent=traceparent())]
        if len(self.order.runs) == 1:
            events.append(self.started(0))
        deadline, expected = monotonic() + CLAIM_PATIENCE, 0
        while monotonic() < deadline:
            answer = await self._publish(events, expected=expected)
            if isinstance(answer, Stored):
                return self._hold(events, answer.sequence)
            if isinstance(answer, Refused) and answer.err_code != subjects.WRONG_SEQUENCE:
                return "undecided"
            whose = await self._ask()
            match whose.answer:
                case "mine":
                    self.ended_runs = set(whose.ended_runs)
                    return self._hold(events, whose.sequence)
                case "another" | "ended":
                    return "gone"
                case "nothing_stored" if whose.sequence != expected:
                    # Only refused messages lie there: claim behind them at once.
                    expected = whose.sequence
                case _:
                    await asyncio.sleep(0.2 + jitter(0.2))
        return "undecided"

    async def say(self, *events: Event) -> Said:
        """Publish events of this lease; returns once they are stored or the lease is lost.

        Whoever speaks at the same time waits for its turn. What is too much for one message goes
        in several, each of them fenced.
        """
        async with self._speaking:
            for part in _parts(list(events), self._most_bytes):
                if await self._say(part) == "lost":
                    return "lost"
            return "stored"

    async def _say(self, events: list[Event]) -> Said:
        pause = 0.2
        while not self.lost:
            answer = await self._publish(events, expected=self._sequence)
            if isinstance(answer, Stored):
                self._hold(events, answer.sequence)
                return "stored"
            logger.info("lease %s: publish not stored: %s", self.order.lease, answer)
            if await self._settle(events):
                return "stored"
            await asyncio.sleep(pause * (1 + jitter(0.2)))
            pause = min(pause * 2, 5.0)
        return "lost"

    async def renew(self) -> Said:
        """Say that the lease is still held."""
        return await self.say(self.event(LeaseRenewed(**self.credentials)))

    def started(self, index: int) -> Event:
        """The event that tells that a run's body begins."""
        run = self.order.runs[index]
        return self.event(RunStarted(**self.credentials, run=run.run), traceparent=run.traceparent)

    def event(self, data: EventData, *, traceparent: str | None = None) -> Event:
        """Put data of this lease into an envelope."""
        run = getattr(data, "run", None)
        return event(
            data,
            id=new_id(),
            source=f"worker/{self.worker}",
            subject=run or self.order.lease,
            time=utc_now(),
            traceparent=traceparent,
        )

    @property
    def _most_bytes(self) -> int:
        """How many bytes of events fit into a message."""
        return self._broker.client.max_payload - _HEADERS

    @property
    def credentials(self) -> dict[str, Any]:
        """The fields that every event of the lease carries."""
        return {"lease": self.order.lease, "token": self.order.token, "nonce": self._nonce}

    async def _settle(self, events: list[Event]) -> bool:
        """Find out what a refusal or a silence meant; true if the events are stored after all."""
        whose = await self._ask()
        match whose.answer:
            case "mine":
                if whose.sequence < self._sequence:
                    # The stream went back: what was stored since is gone with it.
                    return await self._tell_all_again(events, expected=whose.sequence)
                if any(one.id in whose.stored for one in events):
                    self._hold(events, whose.sequence)
                    return True
                self._sequence = whose.sequence
            case "another" | "ended":
                self.lost = True
                return any(one.id in whose.stored for one in events)
            case "nothing_stored":
                return await self._tell_all_again(events, expected=whose.sequence)
            case _:
                logger.debug("lease %s is undecided: %s", self.order.lease, whose.reason)
        return False

    async def tell_again(self) -> bool:
        """Make good what was lost of a lease that has ended; true if nothing is missing."""
        async with self._speaking:
            whose = await self._ask()
            went_back = whose.answer == "mine" and whose.sequence < self._sequence
            if whose.answer == "nothing_stored" or went_back:
                return await self._tell_all_again([], expected=whose.sequence)
            return whose.answer in ("mine", "another", "ended")

    def forget_runs(self) -> None:
        """Let go of what there was to run, inputs and all; what was said of it is kept."""
        self.order = msgspec.structs.replace(self.order, runs=[])

    async def _tell_all_again(self, events: list[Event], *, expected: int) -> bool:
        """The stream forgot this lease: tell all of it again, with the same ids.

        In one message if it fits, so that nobody sees half of it.
        """
        for part in _parts([*self._told, *events], self._most_bytes):
            answer = await self._publish(part, expected=expected)
            if not isinstance(answer, Stored):
                return False
            expected = answer.sequence
        self._hold(events, expected)
        return True

    def _hold(self, events: list[Event], sequence: int) -> Literal["mine"]:
        if any(isinstance(one.data, LeaseRenewed) for one in events):
            # Of many renewals one is enough to be told again.
            self._told = [one for one in self._told if not isinstance(one.data, LeaseRenewed)]
        self._told += events
        self._sequence = sequence
        self.spoke_at = monotonic()
        return "mine"

    async def _ask(self) -> LeaseAnswer:
        question = LeaseQuestion(lease=self.order.lease, worker=self.worker, nonce=self._nonce)
        try:
            return await ask(
                self._broker, subjects.LEASE_QUESTION, question, LeaseAnswer, timeout=3
            )
        except RequestFailed as error:
            return LeaseAnswer(answer="undecided", reason=str(error))

    async def _publish(self, events: list[Event], *, expected: int) -> Answer:
        subject = subjects.event(self.order.lease, self.worker)
        headers = subjects.fence(self.order.lease, expected)
        if events[-1].traceparent:
            headers[subjects.TRACEPARENT_HEADER] = events[-1].traceparent
        body = encode(events)
        self.size += len(body)
        answer = await publish(self._broker, subject, body, headers=headers)
        if isinstance(answer, NoAnswer):
            logger.warning("lease %s: %s", self.order.lease, answer.why)
        return answer


def _parts(events: list[Event], most: int) -> list[list[Event]]:
    """Events in as few messages as the broker takes."""
    parts: list[list[Event]] = [[]]
    size = 0
    for one in events:
        length = len(encode(one)) + 1
        if parts[-1] and size + length > most:
            parts.append([])
            size = 0
        parts[-1].append(one)
        size += length
    return parts
