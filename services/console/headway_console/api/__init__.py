"""`/api/v1`: the HTTP API.

`lists`, `lookups` and `overview` read the database. `forward` hands a request to the service that
carries it out; `definitions` does that with definitions as people write them. `whoami`,
`canaries` and `stream` are the console's own. Each entry has a role, a question and an answer, and
`openapi` makes the document of them.
"""

from headway_console.api.canaries import CANARIES
from headway_console.api.definitions import DEFINED
from headway_console.api.endpoints import Endpoint
from headway_console.api.forward import forwarded
from headway_console.api.lists import LISTS
from headway_console.api.lookups import LOOKUPS
from headway_console.api.overview import OVERVIEW
from headway_console.api.stream import STREAM
from headway_console.api.whoami import WHOAMI

ENDPOINTS: tuple[Endpoint, ...] = (
    *forwarded(), *DEFINED, *LISTS, *LOOKUPS, *CANARIES, OVERVIEW, STREAM, WHOAMI
)  # fmt: skip
