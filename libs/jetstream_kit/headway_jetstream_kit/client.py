"""nats-py's client with its known holes closed.

Everything that reaches into the client's insides stands here, and
`tests/contract/test_client_traps.py` says which hole each piece closes. The client's reader
ends for good when it meets something that it cannot digest, and the client goes on looking
connected; so nothing that comes from outside may make it stumble, and there must be a way to
begin anew whatever state the client is in.
"""

import asyncio
from typing import Any

from nats.aio.client import Client, Srv
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

_MOST_CANCELS = 3


class SturdyClient(Client):
    """A client whose reader survives what others send, and that can be made to begin anew."""

    def __init__(self) -> None:
        super().__init__()
        # How many pings were answered, and how many tries to connect have failed. Both only
        # rise, so whoever watches can tell a connection that lives from one that looks so.
        self.answers = 0
        self.failed_tries = 0

    @property
    def reads(self) -> bool:
        """Whether anybody still listens to what the server says."""
        reader: asyncio.Task[None] | None = self._reading_task
        return reader is not None and not reader.done()

    async def ask_for_answer(self) -> None:
        """Send a ping; `answers` rises when the server has answered it."""
        if self.is_connected:
            await self._send_ping()

    async def begin_anew(self) -> None:
        """Cut the connection off, in whatever state it is, and make another.

        Unlike `force_reconnect` this waits for nothing: neither for data that nobody takes to
        be sent, nor for an earlier try that is stuck. Subscriptions come along.
        """
        if self.is_closed:
            return
        # First of all: a reader that finds its connection cut off would make another by itself,
        # and of two tries at once each takes the other's connection away.
        self._status = Client.RECONNECTING
        self.cut_off()
        await self._stop_trying()
        self._status = Client.RECONNECTING
        self._ps.reset()
        self._reconnection_task = asyncio.create_task(self._attempt_reconnect())

    async def _stop_trying(self) -> None:
        """End an earlier try to connect; one that swallows being cancelled is cancelled again."""
        tried = self._reconnection_task
        for _ in range(_MOST_CANCELS):
            if tried is None or tried.done():
                return
            tried.cancel()
            await asyncio.wait({tried}, timeout=1)

    def cut_off(self) -> None:
        """Drop the connection and what was not sent yet; a close would wait for it to be sent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    def _build_message(
        self,
        sid: int,
        subject: bytes,
        reply: bytes,
        data: bytes,
        headers: dict[str, str] | None,
    ) -> Msg:
        """A message whose subject is no UTF-8 is still a message."""
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
        """The same as theirs, which looks at every character of every name by itself."""
        found: dict[str, str] = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            words = name.split()
            if colon and len(words) == 1 and words[0].isascii():
                found[words[0].decode()] = value.strip().decode(errors="replace")
        return found

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        """Headers that cannot be read are none; the message is what it is without them."""
        try:
            found: dict[str, str] | None = await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None
        return found

    async def _process_pong(self) -> None:
        """An answer that comes after its asker has given up is an answer all the same."""
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
            self.failed_tries += 1
            raise

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except (OSError, TimeoutError, NatsError):
            self.failed_tries += 1
            raise


async def connect(servers: list[str], **options: Any) -> SturdyClient:
    """Connect, as `nats.connect` does."""
    client = SturdyClient()
    await client.connect(servers, **options)
    return client
