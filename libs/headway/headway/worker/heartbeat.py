"""Saying that the worker lives, and hearing what to stop."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.control import CancelPush, Heartbeat, HeartbeatReply
from headway_jetstream_kit import Broker
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

logger = logging.getLogger(__name__)

Instructions = HeartbeatReply | CancelPush


class Heart:
    """Beats for one worker process."""

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
        # How many beats nobody has answered.
        self.unanswered = 0
        self._since = monotonic()

    async def beat_for_ever(self) -> None:
        """Beat at once and then at every interval."""
        while True:
            await self.beat()
            await asyncio.sleep(self._interval)

    async def beat(self) -> None:
        """One heartbeat; silence is reported with how long it has lasted."""
        body = msgspec.json.encode(self._describe())
        try:
            reply = await self._broker.client.request(
                subjects.HEARTBEAT, body, timeout=self._interval
            )
            instructions = msgspec.json.decode(reply.data, type=HeartbeatReply)
        except (OSError, TimeoutError, NatsError, msgspec.DecodeError) as error:
            logger.debug("heartbeat: %s", error)
            self.unanswered += 1
            self._on_silence(self.silence())
            return
        self.last_reply = monotonic()
        if instructions.error:
            logger.error("the dispatcher cannot read our heartbeat: %s", instructions.error)
        if instructions.heartbeat_seconds:
            self._interval = instructions.heartbeat_seconds
        self._obey(instructions)

    def silence(self) -> float:
        """For how many seconds nobody has answered."""
        return monotonic() - (self._since if self.last_reply is None else self.last_reply)

    async def listen(self, worker: str) -> None:
        """Hear cancels that should not wait for the next beat."""

        async def on_push(message: Msg) -> None:
            try:
                self._obey(msgspec.json.decode(message.data, type=CancelPush))
            except msgspec.DecodeError as error:
                logger.warning("a cancel that cannot be read: %s", error)

        await self._broker.client.subscribe(subjects.cancel(worker), cb=on_push)
