"""A receiver of webhooks: it keeps what it gets, and answers as it is told."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


class Receiver:
    """Answers with `statuses` one after the other, then with 204; None means never."""

    def __init__(self) -> None:
        self.statuses: list[int | None] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [
            event for event in self.events if event["type"] == f"headway.notification.{kind}.v1"
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append((first, headers, body))
        status = self.statuses.pop(0) if self.statuses else 204
        if status is None:
            await reader.read()  # until the sender hangs up
        else:
            to = f"Location: http://127.0.0.1:{self.port}/elsewhere\r\n"
            writer.write(f"HTTP/1.1 {status} X\r\n{to}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()


def verified(headers: dict[str, str], body: bytes, secret: str = SECRET) -> bool:
    """Whether a request is signed as the Standard Webhooks specification has it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return f"v1,{wanted}" in headers["webhook-signature"].split(" ")


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
