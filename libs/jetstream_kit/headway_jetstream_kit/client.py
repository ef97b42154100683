"""nats-py's client with its known defects fixed.

Only this module uses the client's internals; `tests/contract/test_client_traps.py` has a test for
each defect. The client's reader ends for good when it cannot parse something, and the client still
looks connected. So no input may raise in the reader, and a reconnect must work in every state.
"""

import asyncio
from contextlib import suppress

from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

_MAX_CANCELS = 3


class SturdyClient(Client):
    """A client whose reader survives malformed input, and that can reconnect in any state."""

    def __init__(self) -> None:
        super().__init__()
        # Counts of answered pings and of failed connects. If neither rises, the connection is dead.
        self.answers = 0
        self.failed_connects = 0

    @property
    def reads(self) -> bool:
        """Whether the reader task still runs."""
        reader: asyncio.Task[None] | None = self._reading_task
        return reader is not None and not reader.done()

    async def send_ping(self) -> None:
        """Send a ping; the server's answer increments `answers`."""
        if self.is_connected:
            await self._send_ping()

    async def reconnect(self) -> None:
        """Drop the connection in any state and reconnect; subscriptions are kept.

        Unlike `force_reconnect` this waits neither for unsent data nor for a stuck reconnect.
        """
        if self.is_closed:
            return
        # Set this first: otherwise the reader notices the drop and reconnects, too, and concurrent
        # reconnects replace each other's connection.
        self._status = Client.RECONNECTING
        self.cut_off()
        earlier = self._reconnection_task
        for _ in range(_MAX_CANCELS):  # a task may swallow a cancellation
            if earlier is not None and not earlier.done():
                earlier.cancel()
                await asyncio.wait({earlier}, timeout=1)
        self._status = Client.RECONNECTING
        self._ps.reset()
        self._reconnection_task = asyncio.create_task(self._attempt_reconnect())

    def cut_off(self) -> None:
        """Drop the connection and unsent data; a close would wait for the data to be sent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        """Accept a subject that is not UTF-8."""
        return self.msg_class(
            subject=subject.decode(errors="replace"),
            reply=reply.decode(errors="replace"),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        """Parse like the original, which is slow because it checks each character of each name."""
        found: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            words = name.split()
            if colon and len(words) == 1 and words[0].isascii():
                found[words[0].decode()] = value.strip().decode(errors="replace")
        return found

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Deliver a message with unreadable headers without them."""
        with suppress(ValueError, IndexError):
            found: dict[str, str] | None = await super()._process_headers(headers)
            return found
        return None

    async def _process_pong(self) -> None:
        """Accept an answer that arrives after its request timed out."""
        self.answers += 1
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pongs_received += 1
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _connect_to_server(self, s: Srv) -> None:
        try:
            await super()._connect_to_server(s)
        except (OSError, TimeoutError, NatsError):
            self.failed_connects += 1
            raise

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except (OSError, TimeoutError, NatsError):
            self.failed_connects += 1
            raise
