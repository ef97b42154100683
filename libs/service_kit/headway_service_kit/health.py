"""`/livez`, `/readyz`, `/metrics` and `/counts` over plain HTTP.

Live means that the event loop turns and the passes report; ready means that what the
service stands on answers too. Either way the body says why, one reason a line. The metrics are in
the text format of Prometheus. The counts are of messages that were received and passed over, by
the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headway_service_kit.after_commit import Counts, total
from headway_service_kit.metrics import CONTENT_TYPE as METRICS_TYPE
from headway_service_kit.metrics import Meter, scrape

Check = Callable[[], Awaitable[str | None]]

_TIMEOUT = 5.0
_CHECK_TIMEOUT = 3.0


class AddressInUse(Exception):
    """Somebody else listens there."""


class Health:
    """Answers for one service."""

    def __init__(
        self,
        service: str,
        *,
        live: Sequence[Check],
        ready: Sequence[Check],
        meters: Sequence[Meter] = (),
        counts: Sequence[Counts] = (),
    ) -> None:
        self.service = service
        self._counts = tuple(counts)
        self._meters = tuple(meters)
        self._live = tuple(live)
        self._ready = tuple(ready)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, address: str) -> None:
        """Listen on `host:port`; port 0 takes any free one."""
        host, _, port = address.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._serve, host or "127.0.0.1", int(port))
        except OSError as error:
            raise AddressInUse(
                f"cannot listen for health checks on {address}: {error.strerror}; "
                "choose another with HEADWAY_HEALTH_ADDRESS"
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def report(self, path: str) -> tuple[int, str]:
        """The answer to a path: status and body."""
        if path == "/livez":
            return await self._judge("live", self._live)
        if path == "/readyz":
            return await self._judge("ready", self._live + self._ready)
        if path == "/metrics":
            return 200, await scrape(self._meters)
        if path == "/counts":
            counts = total(self._counts).items()
            return 200, "\n".join(f"{name} {number}" for name, number in counts)
        return 404, "there are /livez, /readyz, /metrics and /counts"

    async def _judge(self, what: str, checks: Sequence[Check]) -> tuple[int, str]:
        complaints = [one for one in await asyncio.gather(*map(_ask, checks)) if one]
        if complaints:
            return 503, f"{self.service} is not {what}\n" + "\n".join(complaints)
        return 200, f"{self.service} is {what}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                line = await reader.readline()
                tokens = line.decode("latin-1").split()
                path = tokens[1].partition("?")[0] if len(tokens) > 1 else ""
                status, body = await self.report(path)
            reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
            data = (body.rstrip("\n") + "\n").encode()
            kind = METRICS_TYPE if path == "/metrics" else "text/plain; charset=utf-8"
            writer.write(
                f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # a client that hangs up or talks nonsense is its own trouble
        finally:
            writer.close()


async def _ask(check: Check) -> str | None:
    """A check's complaint; that it does not answer is one, too."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT):
            return await check()
    except TimeoutError:
        return f"{getattr(check, '__name__', 'a check')}: no answer within {_CHECK_TIMEOUT:g} s"
