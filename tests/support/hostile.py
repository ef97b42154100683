"""A NATS with users, and a worker that has the least permissions and means harm."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import nats
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_embedded import NatsServer
from nats.aio.client import Client

STRANGER = "mallory"

_USERS = """
authorization {
  users = [
    {user: headway, password: headway}
    {user: %(name)s, password: %(name)s, permissions: {
      publish: [
        "headway.heartbeat", "headway.control.dispatcher.lease",
        "headway.control.scheduler.activation",
        "headway.event.*.%(name)s", "headway.progress.*.%(name)s",
        "$JS.API.CONSUMER.MSG.NEXT.HEADWAY_RUNS.worker-theirs",
        "$JS.ACK.HEADWAY_RUNS.worker-theirs.>"
      ],
      subscribe: ["_INBOX_%(name)s.>", "headway.cancel.%(name)s"]
    }}
  ]
}
"""


@asynccontextmanager
async def run_guarded_nats(folder: Path) -> AsyncIterator[str]:
    """Run a NATS on which only `headway` may do everything; yields its URL."""
    server = NatsServer(folder, config_extra=_USERS % {"name": STRANGER})
    await server.start()
    try:
        yield f"nats://headway:headway@127.0.0.1:{server.port}"
    finally:
        await server.stop()


class Stranger:
    """A worker of another team: it may publish under its own name, and nothing else."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def say(self, lease: UUID, *words: Any, headers: dict[str, str] | None = None) -> int:
        """Publish events for a lease, without a fence unless headers say so; returns the sequence."""
        body = encode(
            [
                event(word, id=uuid4(), source=f"worker/{STRANGER}", subject=lease, time=utc_now())
                for word in words
            ]
        )
        return await self.say_raw(lease, body, headers=headers)

    async def say_raw(
        self, lease: UUID, body: bytes, *, headers: dict[str, str] | None = None
    ) -> int:
        """Publish bytes for a lease; returns the sequence."""
        subject = subjects.event(lease, STRANGER)
        reply = await self._client.request(subject, body, timeout=5, headers=headers)
        return int(msgspec.json.decode(reply.data)["seq"])


@asynccontextmanager
async def stranger_on(url: str) -> AsyncIterator[Stranger]:
    """Connect a stranger to a guarded NATS."""
    own = url.replace("headway:headway@", f"{STRANGER}:{STRANGER}@")
    client = await nats.connect(own, inbox_prefix=f"_INBOX_{STRANGER}".encode())
    try:
        yield Stranger(client)
    finally:
        await client.close()
