"""Publishing to NATS by hand, past all that a client library would refuse."""

import asyncio
from urllib.parse import urlsplit


async def publish_raw(url: str, subject: bytes, body: bytes = b"", headers: bytes = b"") -> None:
    """Publish bytes as they are, and wait until the server has taken them.

    `headers` are lines, each with its line break.
    """
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
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
