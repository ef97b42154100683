"""Send heartbeats, and receive instructions to cancel, release or drain."""

import asyncio
from collections.abc import Callable

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.worker_protocol import CancelPush, Heartbeat, HeartbeatReply
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_tracing.log import get_logger
from nats.aio.msg import Msg

log = get_logger(__name__)

Instructions = HeartbeatReply | CancelPush

# A heartbeat this late means that a body blocked the event loop.
_LATE_SECONDS = 1.0


class HeartbeatSender:
    """Sends the heartbeats of one worker process."""

    def __init__(
        self,
        broker: Broker,
        *,
        describe: Callable[[], Heartbeat],
        obey: Callable[[Instructions], None],
        on_silence: Callable[[float], None],
        interval: float,
    ) -> None:
        self._broker = broker
        self._describe = describe
        self._obey = obey
        self._on_silence = on_silence
        self._interval = interval
        self.last_reply: float | None = None
        # Heartbeats without an answer.
        self.unanswered = 0
        self._since = monotonic()

    async def beat_for_ever(self) -> None:
        """Send a heartbeat at once and then at every interval."""
        while True:
            await self.beat()
            due = monotonic() + self._interval
            await asyncio.sleep(self._interval)
            late = monotonic() - due
            if late > _LATE_SECONDS:
                # Before the orphan timeout, after which the runs are lost.
                log.warning(
                    "event loop was blocked: an async body that does not await must be a plain "
                    "function or have process=True",
                    seconds=round(late, 1),
                    running=", ".join(map(str, self._describe().runs)),
                )

    async def beat(self) -> None:
        """Send one heartbeat; report the silence if it is not answered."""
        try:
            instructions = await ask(
                self._broker,
                subjects.HEARTBEAT,
                self._describe(),
                HeartbeatReply,
                timeout=self._interval,
            )
        except RequestFailed as error:
            log.debug("heartbeat was not answered", error=error)
            self.unanswered += 1
            self._on_silence(self.silence())
            return
        self.last_reply = monotonic()
        if instructions.error:
            log.error("dispatcher cannot read the heartbeat", error=instructions.error)
        if instructions.heartbeat_seconds:
            self._interval = instructions.heartbeat_seconds
        self._obey(instructions)

    def silence(self) -> float:
        """Return the seconds since the last answer."""
        return monotonic() - (self._since if self.last_reply is None else self.last_reply)

    async def listen(self, worker: str) -> None:
        """Receive cancels that should not wait for the next heartbeat."""

        async def on_push(message: Msg) -> None:
            try:
                self._obey(msgspec.json.decode(message.data, type=CancelPush))
            except msgspec.DecodeError as error:
                log.warning("cancel push is malformed", error=error)

        await self._broker.client.subscribe(subjects.cancel(worker), cb=on_push)
