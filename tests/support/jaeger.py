"""A real Jaeger, where it was built (`./justw jaeger`): in memory, on this machine alone."""

import asyncio
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway_embedded import SupervisedProcess, free_port

from support.drawing import Drawn
from support.world import until

ROOT = Path(__file__).parents[2]
VERSION = re.search(r"^VERSION=([\d.]+)", (ROOT / "tests/jaeger/build").read_text(), re.MULTILINE)[
    1
]
BINARY = Path(os.environ.get("HEADWAY_JAEGER") or ROOT / ".tools" / f"jaeger-{VERSION}")

CONFIGURATION = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
extensions:
  jaeger_storage: {{backends: {{here: {{memory: {{max_traces: 10000}}}}}}}}
  jaeger_query:
    storage: {{traces: here}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{grpc}"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{otlp}"}}}}}}
exporters:
  jaeger_storage_exporter: {{trace_storage: here}}
"""


def missing() -> str | None:
    """Why there is no Jaeger here, or none."""
    return None if os.access(BINARY, os.X_OK) else "./justw jaeger has not built one (it needs Go)"


class Jaeger:
    """One Jaeger with empty storage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: SupervisedProcess | None = None
        otlp, query = free_port(), free_port()
        self.otlp, self.url = f"http://127.0.0.1:{otlp}", f"http://127.0.0.1:{query}"
        self._ports = {"otlp": otlp, "query": query, "grpc": free_port()}

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._folder.mkdir()
        configuration = self._folder / "jaeger.yaml"
        configuration.write_text(CONFIGURATION.format(**self._ports))
        with (self._folder / "log").open("wb") as log:
            self._process = await SupervisedProcess.start(
                [BINARY, "--config", configuration], stdout=log.fileno(), stderr=log.fileno()
            )
        await until(self._answers, within=30, what="Jaeger answers")

    async def _answers(self) -> bool:
        assert self._process.returncode is None, (self._folder / "log").read_text()
        return all([await _listens(self._ports[name]) for name in ("otlp", "query")])

    async def stop(self) -> None:
        """End it, with all that it keeps."""
        if self._process is not None:
            await self._process.stop(within=5)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def fetch(url: str, trace: str) -> list[Drawn]:
    """Read all spans of a trace from Jaeger's query API; none if it does not have the trace."""
    try:
        with urllib.request.urlopen(f"{url}/api/traces/{trace}", timeout=10) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError:
        return []
    return [span for data in found["data"] for span in read(data)]


def read(trace: Mapping[str, Any]) -> list[Drawn]:
    """Convert the spans of a trace in Jaeger's format."""
    services = {key: value["serviceName"] for key, value in trace["processes"].items()}
    return [_span(span, services[span["processID"]]) for span in trace["spans"]]


def _span(span: Mapping[str, Any], service: str) -> Drawn:
    references = span.get("references") or []
    parents = [ref["spanID"] for ref in references if ref["refType"] == "CHILD_OF"]
    began = span["startTime"] * 1_000
    return Drawn(
        service=service,
        name=span["operationName"],
        id=span["spanID"],
        trace=span["traceID"],
        parent=parents[0] if parents else "",
        began=began,
        ended=began + span["duration"] * 1_000,
        links=[
            (ref["traceID"], ref["spanID"])
            for ref in references
            if ref["refType"] == "FOLLOWS_FROM"
        ],
        attributes={tag["key"].removeprefix("headway."): tag["value"] for tag in span["tags"]},
    )
