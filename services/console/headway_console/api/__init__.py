"""`/api/v1`: the HTTP API.

An endpoint is a typed function with a route and a role (`endpoints`). `reads` has the lists and
lookups, `forwarded` sends requests to the services, `definitions` accepts YAML, and `stream`
follows events. `request_fields` reads and checks requests. `openapi.json` is generated.
"""

from pathlib import Path

from headway_contract.http import API
from litestar import get

from headway_console.access.guards import needs
from headway_console.api import definitions
from headway_console.api.endpoints import Endpoint
from headway_console.api.forwarded import FORWARDED
from headway_console.api.reads import READS
from headway_console.api.stream import stream_events

_DOCUMENT = Path(__file__).with_name("openapi.json")

ENDPOINTS: tuple[Endpoint, ...] = (*FORWARDED, *definitions.ENDPOINTS, *READS, stream_events)


@get(f"{API}/openapi.json", opt=needs("viewer"), media_type="application/json")
async def show_document() -> bytes:
    """Return the OpenAPI document."""
    return _DOCUMENT.read_bytes()
