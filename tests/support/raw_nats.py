"""Publishing to NATS by hand, past all that a client library would refuse."""

import asyncio
import json
from urllib.parse import urlsplit


async def publish_raw(url: str, subject: bytes, body: bytes = b"", headers: bytes = b"") -> None:
    """Publish bytes as they are, and wait until the server has taken them.

    `headers` are lines, each with its line break.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        await reader.readline()
        writer.write(connect_line(url))
        if headers:
            block = b"NATS/1.0\r\n" + headers + b"\r\n"
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            writer.write(b"HPUB " + subject + b" " + sizes + b"\r\n" + block + body + b"\r\n")
        else:
            writer.write(b"PUB " + subject + b" %d\r\n" % len(body) + body + b"\r\n")
        writer.write(b"PING\r\n")
        async with asyncio.timeout(5):
            answer = await reader.readline()
        assert answer == b"PONG\r\n", answer
    finally:
        writer.close()


def connect_line(url: str) -> bytes:
    """The first line of a client, with the user and the password of the URL."""
    address = urlsplit(url)
    options = {"verbose": False, "headers": True}
    login = {"user": address.username, "pass": address.password} if address.username else {}
    return f"CONNECT {json.dumps(options | login)}\r\n".encode()
