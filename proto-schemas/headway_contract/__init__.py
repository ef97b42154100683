"""The contract between scheduler, dispatcher and workers.

This package alone defines everything that crosses the broker:

- `subjects`: streams, subjects, consumers and headers.
- `envelope`: the CloudEvents envelope of every event.
- Events, one module per stream: `work` (to the dispatcher, with the terms of work), `orders` (to
  workers), `lifecycle` (from workers), `settled` (outcomes). `notifications` go to a webhook.
- Requests and answers by topic: `manifests`, `definitions` (plan, apply, applications),
  `work_queue` (enqueue, cancel, explain), `dead_letters` (retry, acknowledge, canaries),
  `operations` (groups, jobs, workers, settings), `reconcile`, and `worker_protocol` (heartbeats,
  lease questions, progress).
- `fields`: shared field types, limits of sizes, and the base of requests.
- `routes` and `http`: the same requests over HTTP. `fitting`: every problem of a message at once.

`registry` lists every type. The JSON Schemas, the AsyncAPI document and the OpenAPI document are
generated from the Structs, and the samples must always decode.

Old and new programs understand each other, because unknown fields are ignored and an event of an
unknown type decodes to `Unknown`. `PROTOCOL.md` describes the protocol for workers in any language.
"""

from headway_contract import registry as registry
from headway_contract.envelope import Event, EventData, Malformed, Unknown, decode, encode, event
from headway_contract.fields import InvalidName, check_name

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
