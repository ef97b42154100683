"""`/api/v1`: the table of routes, answered.

`forwarding` hands a request to the service that owns the matter; `definitions` takes definitions
as people write them; `whoami`, `overview`, `lists`, `canaries` and `stream` are the console's own.
Each entry has a role, a question and an answer, and `openapi` makes the document of them.
"""

from headway_console.api.canaries import CANARIES
from headway_console.api.definitions import DEFINED
from headway_console.api.endpoints import Endpoint
from headway_console.api.forward import forwarded
from headway_console.api.lists import LISTS
from headway_console.api.overview import OVERVIEW
from headway_console.api.stream import STREAM
from headway_console.api.whoami import WHOAMI

_OWN = (*DEFINED, *LISTS, *CANARIES, OVERVIEW, STREAM, WHOAMI)
_ANSWERED_HERE = {endpoint.route.name for endpoint in _OWN}

# What the console can answer itself it does not hand on.
ENDPOINTS: tuple[Endpoint, ...] = (
    *(one for one in forwarded() if one.route.name not in _ANSWERED_HERE),
    *_OWN,
)
