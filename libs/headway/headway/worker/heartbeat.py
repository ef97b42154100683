"""Saying that the worker lives, and hearing what to stop."""

import asyncio
import logging
from collections.abc import Callable

import msgspec
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.control import CancelPush, Heartbeat, HeartbeatReply
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from nats.aio.msg import Msg

logger = logging.getLogger(__name__)

Instructions = HeartbeatReply | CancelPush

# Later than this a beat is late because something has kept the loop to itself.
_LATE_SECONDS = 1.0


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
            due = monotonic() + self._interval
            await asyncio.sleep(self._interval)
            self._tell_if_late(monotonic() - due)

    def _tell_if_late(self, seconds: float) -> None:
        """After the orphan timeout the runs would be lost, and nobody would know why."""
        if seconds > _LATE_SECONDS:
            logger.warning(
                "the worker was held up for %.1f s and could neither beat nor hear of cancels: "
                "an async body that does not await must be a plain function or have process=True "
                "(running: %s)",
                seconds,
                ", ".join(map(str, self._describe().runs)) or "nothing any more",
            )

    async def beat(self) -> None:
        """One heartbeat; silence is reported with how long it has lasted."""
        try:
            instructions = await ask(
                self._broker,
                subjects.HEARTBEAT,
                self._describe(),
                HeartbeatReply,
                timeout=self._interval,
            )
        except RequestFailed as error:
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
