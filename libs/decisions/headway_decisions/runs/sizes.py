"""Events of workers, cut to what is kept of them.

A worker in any language is told the limits, and may not keep them. What is too long is cut; an
output that is too large cannot be cut, so its run failed, as it would have at a worker that
had looked.
"""

import msgspec
from headway_contract import Event
from headway_contract.lifecycle import Failure, LeaseClaimed, RunCancelled, RunCompleted, RunFailed
from headway_contract.limits import (
    KIND_LIMIT,
    KINDS_LIMIT,
    MESSAGE_LIMIT,
    OUTPUT_LIMIT,
    OUTPUT_TOO_LARGE,
    STACK_LIMIT,
)
from msgspec import structs

_HOST_LIMIT = 255


def bounded(event: Event, message_size: int) -> Event:
    """The event as it is kept; `message_size` is that of the whole message, in bytes."""
    match event.data:
        case RunFailed(failure=failure):
            return _with(event, structs.replace(event.data, failure=_cut(failure)))
        case RunCancelled(reason=reason) if len(reason) > MESSAGE_LIMIT:
            return _with(event, structs.replace(event.data, reason=reason[:MESSAGE_LIMIT]))
        case LeaseClaimed(host=host) if len(host) > _HOST_LIMIT:
            return _with(event, structs.replace(event.data, host=host[:_HOST_LIMIT]))
        # To measure an output costs as much as to read it, and few messages are large.
        case RunCompleted() as completed if message_size > OUTPUT_LIMIT:
            return _measured(event, completed)
    return event


def _measured(event: Event, completed: RunCompleted) -> Event:
    size = len(msgspec.json.encode(completed.output))
    if size <= OUTPUT_LIMIT:
        return event
    failure = Failure(
        kind=OUTPUT_TOO_LARGE,
        message=f"the output has {size} bytes, more than {OUTPUT_LIMIT}: "
        "store it elsewhere and return where it is found",
        retryable=False,
    )
    failed = RunFailed(
        lease=completed.lease,
        token=completed.token,
        nonce=completed.nonce,
        run=completed.run,
        failure=failure,
    )
    return _with(event, failed)


def _cut(failure: Failure) -> Failure:
    return structs.replace(
        failure,
        kind=failure.kind[:KIND_LIMIT],
        kinds=[kind[:KIND_LIMIT] for kind in failure.kinds[:KINDS_LIMIT]],
        message=failure.message[:MESSAGE_LIMIT],
        stack=failure.stack[-STACK_LIMIT:],
    )


def _with(event: Event, data: RunFailed | RunCancelled | LeaseClaimed) -> Event:
    return structs.replace(event, type=data.type, data=data)
