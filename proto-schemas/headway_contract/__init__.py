"""The contract between scheduler, dispatcher and workers.

This package defines everything that crosses the broker:

- `subjects`: streams, subjects, consumers and headers.
- `envelope`: the CloudEvents envelope of every event.
- Events, one module per stream: `work` (to the dispatcher, with the terms of work), `orders` (to
  workers), `lifecycle` (from workers), `settled` (outcomes). `notifications` go to a webhook.
- Requests and answers by topic: `manifests`, `definitions`, `work_queue`, `dead_letters`,
  `operations` (groups, jobs, workers, settings), `reconcile` and `worker_protocol`.
- `fields`: shared field types, size limits, and the base of requests. `http`: names of the HTTP
  API. `fitting`: every problem of a message at once.

`registry` lists every type. The JSON Schemas, the AsyncAPI and the OpenAPI document are generated
from the structs; a comment on a field is its description in the schema. Versions stay compatible:
the samples must always decode, unknown fields are ignored, and an event of an unknown type decodes
to `Unknown`. `PROTOCOL.md` describes the protocol for workers in any language.
"""

from headway_contract import registry as registry
from headway_contract.envelope import Event as Event
from headway_contract.envelope import EventData as EventData
from headway_contract.envelope import Malformed as Malformed
from headway_contract.envelope import Unknown as Unknown
from headway_contract.envelope import decode as decode
from headway_contract.envelope import encode as encode
from headway_contract.envelope import event as event
from headway_contract.fields import InvalidName as InvalidName
from headway_contract.fields import check_name as check_name
