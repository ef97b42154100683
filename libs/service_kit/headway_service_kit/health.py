"""Serves `/livez`, `/readyz` and `/metrics` over plain HTTP.

Live means that the event loop runs and the passes report. Ready means that PostgreSQL and NATS
answer too. The body names the reasons, one a line. Metrics are in the text format of Prometheus.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from headway_service_kit.metrics import CONTENT_TYPE as METRICS_TYPE
from headway_service_kit.metrics import Meter, scrape

# Returns the problem, or `None`.
Check = Callable[[], Awaitable[str | None]]

_TIMEOUT = 5.0
_CHECK_TIMEOUT = 3.0


class AddressInUse(Exception):
    """Another process listens on the address."""


@dataclass(eq=False)
class Health:
    """The health server of a service."""

    service: str
    live: Sequence[Check]
    ready: Sequence[Check]
    meters: Sequence[Meter] = ()
    port: int = field(default=0, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)

    async def start(self, address: str) -> None:
        """Listen on `host:port`; port 0 takes a free port."""
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
        """Return status and body for a path."""
        if path == "/livez":
            return await self._run_checks("live", self.live)
        if path == "/readyz":
            return await self._run_checks("ready", [*self.live, *self.ready])
        if path == "/metrics":
            return 200, await scrape(self.meters)
        return 404, "there are /livez, /readyz and /metrics"

    async def _run_checks(self, state: str, checks: Sequence[Check]) -> tuple[int, str]:
        found = await asyncio.gather(*map(_run_check, checks))
        problems = [problem for problem in found if problem]
        if problems:
            return 503, f"{self.service} is not {state}\n" + "\n".join(problems)
        return 200, f"{self.service} is {state}"

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
            return  # the client hung up or sent an invalid request
        finally:
            writer.close()


async def _run_check(check: Check) -> str | None:
    """Return the problem that a check finds; a check that hangs is a problem too."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT):
            return await check()
    except TimeoutError:
        return f"{getattr(check, '__name__', 'a check')}: no answer within {_CHECK_TIMEOUT:g} s"
