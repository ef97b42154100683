"""Receives spans over OTLP/HTTP, and tells the traces of work from them."""

import asyncio
import gzip

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.drawing import Drawn, Order, by_begin, draw
from support.world import until


class Collector:
    """Receives spans as an OTLP/HTTP collector would."""

    def __init__(self) -> None:
        self.spans: list[Drawn] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Its address, as `OTEL_EXPORTER_OTLP_ENDPOINT` takes it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await _read_body(reader, headers)
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            service = next(
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            )
            for scope in resource.scope_spans:
                self.spans += [_read(service, span) for span in scope.spans]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    def decision(self, **attributes: str) -> Drawn | None:
        """The span in which a piece of work was decided."""
        for span in self.spans:
            if span.name == "decide" and attributes.items() <= span.attributes.items():
                return span
        return None

    async def seen(self, expected: str, *, order: Order = by_begin, **attributes: str) -> Drawn:
        """Wait until the trace of a decision is complete; returns its top."""

        def found() -> str:
            top = self.decision(**attributes)
            return "" if top is None else draw(top, self.spans, order=order)

        async def complete() -> bool:
            return found() == expected

        try:
            await until(complete, within=20, what=f"the trace of {attributes}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is\n{found()}\nand not\n{expected}") from error
        top = self.decision(**attributes)
        assert top is not None
        return top


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers["content-length"]))
    body = b""
    while length := int(await reader.readline(), 16):
        body += await reader.readexactly(length)
        await reader.readline()
    await reader.readline()
    return body


def _read(service: str, span) -> Drawn:
    return Drawn(
        service=service,
        name=span.name,
        id=span.span_id.hex(),
        trace=span.trace_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        attributes={
            pair.key.removeprefix("headway."): pair.value.string_value or pair.value.int_value
            for pair in span.attributes
        },
    )
