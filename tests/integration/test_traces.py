"""One trace follows a piece of work through all services, received over OTLP."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest_asyncio
from headway_postgres_kit import Database
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.processes import Processes
from support.world import until


class Collector:
    """Receives spans as an OTLP/HTTP collector would."""

    def __init__(self) -> None:
        self.spans = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        body = await reader.readexactly(int(headers["content-length"]))
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
                self.spans += [(service, span) for span in scope.spans]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    def trace_of(self, work: str) -> list[tuple[str, str]]:
        """The (service, span) pairs of the trace in which the work was decided."""
        for _, span in self.spans:
            attributes = {one.key: one.value.string_value for one in span.attributes}
            if span.name == "decide" and attributes.get("headway.work") == work:
                return [
                    (service, other.name)
                    for service, other in self.spans
                    if other.trace_id == span.trace_id
                ]
        return []


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


async def test_one_trace_follows_a_piece_of_work(
    database_url, nats_url, database: Database, tmp_path, collector
):
    processes = Processes(database_url, nats_url, tmp_path, provision="auto")
    processes.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.port}"
    processes.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"
    (tmp_path / "begun").write_text("")
    try:
        for command in ("dispatcher", "worker", "scheduler"):
            await processes.headway(command)

        async def settled():
            async with database.acquire() as connection:
                return await connection.fetchrow(
                    "SELECT work_id, trace_id FROM dispatcher.metadata"
                    " JOIN dispatcher.work_queue ON work_queue.id = work_id"
                    " WHERE work_queue.outcome = 'completed' AND NOT EXISTS"
                    " (SELECT FROM scheduler.work WHERE work.id = work_id) LIMIT 1"
                )

        row = await until(settled, within=30, what="a piece of work is settled")
        expected = {
            ("headway-scheduler", "decide"),
            ("headway-scheduler", "publish"),
            ("headway-dispatcher", "admit"),
            ("headway-dispatcher", "publish"),
            ("headway-worker", "run"),
            ("headway-dispatcher", "project"),
            ("headway-scheduler", "settle"),
        }

        async def complete():
            return expected <= set(collector.trace_of(str(row["work_id"])))

        async def passes_told():
            names = {span.name for _, span in collector.spans}
            return {"tick", "relay", "gate", "projector", "intake"} <= names

        await until(complete, within=15, what="the trace is complete")
        await until(passes_told, within=15, what="every pass has told a span of its own")
        assert row["trace_id"] in {span.trace_id.hex() for _, span in collector.spans}
    finally:
        await processes.stop()
        print(processes.logs())
