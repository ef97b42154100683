"""A TCP proxy between a program and a server, which a test can make deaf, dumb, or both."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Direction = Literal["to_server", "to_client"]
BOTH: tuple[Direction, ...] = ("to_server", "to_client")


@dataclass
class _Pipe:
    """One connection; a direction that does not flow is not even read, as in a black hole."""

    flows: dict[Direction, asyncio.Event] = field(default_factory=dict)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def __post_init__(self) -> None:
        for direction in BOTH:
            self.flows[direction] = asyncio.Event()
            self.flows[direction].set()


class Proxy:
    """Forwards to one server until told otherwise."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._pipes: list[_Pipe] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._stall_at: bytes | None = None
        self._stall_new: tuple[Direction, ...] = ()
        # Bytes that are replaced on their way to the server.
        self.swap: tuple[bytes, bytes] | None = None
        self.accepted = 0
        self.url = ""

    async def start(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._target.netloc.rpartition("@")
        self.url = urlunsplit(self._target._replace(netloc=f"{user}{at}127.0.0.1:{port}"))
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for pipe in self._pipes:
            for writer in pipe.writers:
                writer.transport.abort()

    def stall(self, *directions: Direction, new_ones_too: bool = False) -> None:
        """Stop forwarding on every connection that there is."""
        for pipe in self._pipes:
            for direction in directions or BOTH:
                pipe.flows[direction].clear()
        if new_ones_too:
            self._stall_new = directions or BOTH

    def stall_after(self, marker: bytes) -> None:
        """Let every new connection come to the point where the server says this, and no further."""
        self._stall_at = marker

    def flow(self) -> None:
        """Forward again, whatever was stalled."""
        self._stall_at, self._stall_new = None, ()
        for pipe in self._pipes:
            for gate in pipe.flows.values():
                gate.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        pipe = _Pipe(writers=[writer])
        self._pipes.append(pipe)
        for direction in self._stall_new:
            pipe.flows[direction].clear()
        there, back = await asyncio.open_connection(self._target.hostname, self._target.port)
        pipe.writers.append(back)

        def look(data: bytes) -> bytes:
            if self._stall_at is not None and self._stall_at in data:
                pipe.flows["to_client"].clear()
            return data

        self._forward(reader, back, pipe.flows["to_server"], self._swapped)
        self._forward(there, writer, pipe.flows["to_client"], look)

    def _swapped(self, data: bytes) -> bytes:
        return data if self.swap is None else data.replace(*self.swap)

    def _forward(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        flows: asyncio.Event,
        passed: Callable[[bytes], bytes],
    ) -> None:
        async def forward() -> None:
            try:
                while True:
                    await flows.wait()
                    data = await source.read(65536)
                    await flows.wait()  # what was on its way when the hole opened is in it, too
                    if not data:
                        break
                    sink.write(passed(data))
                    await sink.drain()
            except OSError:
                pass
            finally:
                sink.close()

        task = asyncio.create_task(forward())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
