"""The HTTP server: uvicorn on a given socket."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from headway_service_kit.health import AddressInUse

# Time for open requests after a stop.
_GRACE_SECONDS = 3
_BACKLOG = 1024


class _Server(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one application until it is stopped."""

    def __init__(self, application: Any, listening: socket.socket) -> None:
        self._listening = listening
        self._server = _Server(
            uvicorn.Config(
                application,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to serve."""
        self._task = asyncio.create_task(
            self._server.serve(sockets=[self._listening]), name="console-http"
        )
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Finish open requests and stop."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=2 * _GRACE_SECONDS)
            self._task.cancel()
        self._listening.close()

    async def serves(self) -> str | None:
        """Return a problem for the health check if the server has stopped."""
        if self._task is None or self._task.done() or not self._server.started:
            return "the HTTP server has stopped"
        return None


def listen(address: str) -> socket.socket:
    """Open a listening socket on `host:port`; port 0 takes any free port."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, int(port)))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise AddressInUse(
            f"the console cannot listen on {address}: {error.strerror}; "
            "choose another with HEADWAY_CONSOLE_ADDRESS, or --console-port of 'headway up'"
        ) from error
    made.setblocking(False)  # noqa: FBT003
    return made
