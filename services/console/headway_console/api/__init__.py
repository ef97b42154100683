"""`/api/v1`: the HTTP API.

An endpoint is a typed function with a route and a role (`endpoints`). `lists` and `lookups` read
the database, `forwarded` sends requests to the services, `definitions` accepts YAML, and `stream`
follows events. `request_fields` reads and checks requests, and `openapi` makes the document.
"""

from headway_console.api import definitions
from headway_console.api.endpoints import Endpoint
from headway_console.api.forwarded import FORWARDED
from headway_console.api.lists import LISTS
from headway_console.api.lookups import LOOKUPS
from headway_console.api.stream import follow_events

ENDPOINTS: tuple[Endpoint, ...] = (
    *FORWARDED, *definitions.ENDPOINTS, *LISTS, *LOOKUPS, follow_events
)  # fmt: skip
