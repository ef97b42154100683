"""The contract between scheduler, dispatcher and workers.

Everything that crosses the broker is described here and nowhere else: the streams and
subjects (`subjects`), the envelope that every event travels in (`envelope`), the events
themselves (`work`, `orders`, `lifecycle`, `settled`) and the request/reply messages of
the worker protocol (`control`). The Structs are the source; the JSON Schemas under
`schemas/` and the AsyncAPI document are generated from them, and the samples under
`samples/` must decode for ever.

Two rules keep old and new programs talking: unknown fields are ignored, and an event of
an unknown type decodes to `Unknown` instead of failing. The protocol that a worker in
any language has to speak is told in `PROTOCOL.md` beside this package.
"""

from headway_contract import registry as registry
from headway_contract.envelope import Event, EventData, Malformed, Unknown, decode, encode, event
from headway_contract.names import InvalidName, check_name

__all__ = [
    "Event",
    "EventData",
    "InvalidName",
    "Malformed",
    "Unknown",
    "check_name",
    "decode",
    "encode",
    "event",
]
