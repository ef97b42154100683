"""`/api/v1`: the HTTP API.

An endpoint is a typed function with a route and a role (`endpoints`). `reads` has the lists and
lookups, `forwarded` sends requests to the services, `definitions` accepts YAML, and `stream`
follows events. `request_fields` reads and checks requests, and `openapi` makes the document.
"""

from headway_console.api import definitions
from headway_console.api.endpoints import Endpoint
from headway_console.api.forwarded import FORWARDED
from headway_console.api.reads import READS
from headway_console.api.stream import stream_events

ENDPOINTS: tuple[Endpoint, ...] = (*FORWARDED, *definitions.ENDPOINTS, *READS, stream_events)
