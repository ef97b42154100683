"""Send heartbeats, and receive instructions to cancel, release or drain."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.worker_protocol import CancelPush, Heartbeat, HeartbeatReply
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker, Msg
from headway_jetstream_kit.ask import ask
from headway_tracing.log import get_logger

log = get_logger(__name__)

# A heartbeat this late means that a body blocked the event loop.
_LATE_SECONDS = 1.0


@dataclass(eq=False)
class HeartbeatSender:
    """Sends the heartbeats of one worker process."""

    broker: Broker
    describe: Callable[[], Heartbeat]
    obey: Callable[[CancelPush], None]
    on_silence: Callable[[float], None]
    interval: float
    last_reply: float | None = None
    # Heartbeats without an answer.
    unanswered: int = 0
    _since: float = field(default_factory=monotonic)

    async def beat_for_ever(self) -> None:
        """Send a heartbeat at once and then at every interval."""
        while True:
            await self.beat()
            due = monotonic() + self.interval
            await asyncio.sleep(self.interval)
            late = monotonic() - due
            if late > _LATE_SECONDS:
                # Before the orphan timeout, after which the runs are lost.
                log.warning(
                    "event loop was blocked: an async body that does not await must be a plain "
                    "function or have process=True",
                    seconds=round(late, 1),
                    running=", ".join(map(str, self.describe().runs)),
                )

    async def beat(self) -> None:
        """Send one heartbeat; report the silence if it is not answered."""
        try:
            broker, subject, heartbeat = self.broker, subjects.HEARTBEAT, self.describe()
            reply = await ask(broker, subject, heartbeat, HeartbeatReply, timeout=self.interval)
        except RequestFailed as error:
            log.debug("heartbeat was not answered", error=error)
            self.unanswered += 1
            self.on_silence(self.silence())
            return
        self.last_reply = monotonic()
        if reply.error:
            log.error("dispatcher cannot read the heartbeat", error=reply.error)
        if reply.heartbeat_seconds:
            self.interval = reply.heartbeat_seconds
        self.obey(reply)

    def silence(self) -> float:
        """Return the seconds since the last answer."""
        return monotonic() - (self._since if self.last_reply is None else self.last_reply)

    async def listen(self, worker: str) -> None:
        """Receive cancels that should not wait for the next heartbeat."""

        async def on_push(message: Msg) -> None:
            try:
                self.obey(msgspec.json.decode(message.data, type=CancelPush))
            except msgspec.DecodeError as error:
                log.warning("cancel push is malformed", error=error)

        await self.broker.client.subscribe(subjects.cancel(worker), cb=on_push)
