"""`/api/v1`: the table of routes, answered.

`forwarding` hands a request to the service that owns the matter; `definitions` takes definitions
as people write them; `whoami`, `lists` and `stream` are the console's own. Each entry has a role,
a question and an answer, and `openapi` makes the document of the same entries.
"""

from headway_console.api.endpoints import Endpoint
from headway_console.api.forwarding import forwarded
from headway_console.api.whoami import WHOAMI

ENDPOINTS: tuple[Endpoint, ...] = (*forwarded(), WHOAMI)
