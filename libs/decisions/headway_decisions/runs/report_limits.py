"""Bound everything that workers send: sizes, text that can be stored, and rates of messages.

Workers in any language know the limits and may not keep them. Long text is cut. An output that is
too large cannot be cut, so its run fails. JSON may contain text that PostgreSQL does not store (NUL
characters and halves of surrogate pairs); it is replaced by visible text, so that the report is
kept.
"""

import re
from collections.abc import Hashable

import msgspec
from headway_contract import Event
from headway_contract.fields import (
    KIND_LIMIT,
    KINDS_LIMIT,
    MESSAGE_LIMIT,
    OUTPUT_LIMIT,
    OUTPUT_TOO_LARGE,
    STACK_LIMIT,
)
from headway_contract.lifecycle import Failure, LeaseClaimed, RunCancelled, RunCompleted, RunFailed
from msgspec import Struct, structs

_HOST_LIMIT = 255


def bound_event(event: Event, message_size: int) -> Event:
    """Cut an event to the limits; `message_size` is the size of its message in bytes."""
    match event.data:
        case RunFailed(failure=failure):
            return _with(event, structs.replace(event.data, failure=_cut_failure(failure)))
        case RunCancelled(reason=reason) if len(reason) > MESSAGE_LIMIT:
            return _with(event, structs.replace(event.data, reason=reason[:MESSAGE_LIMIT]))
        case LeaseClaimed(host=host) if len(host) > _HOST_LIMIT:
            return _with(event, structs.replace(event.data, host=host[:_HOST_LIMIT]))
        # Measuring an output is expensive, and few messages are large.
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


def _cut_failure(failure: Failure) -> Failure:
    return structs.replace(
        failure,
        kind=failure.kind[:KIND_LIMIT],
        kinds=[kind[:KIND_LIMIT] for kind in failure.kinds[:KINDS_LIMIT]],
        message=failure.message[:MESSAGE_LIMIT],
        stack=failure.stack[-STACK_LIMIT:],
    )


def _with(event: Event, data: RunFailed | RunCancelled | LeaseClaimed) -> Event:
    return structs.replace(event, type=data.type, data=data)


NUL_SHOWN = "\\0"
UNREADABLE_SHOWN = "\ufffd"

# Whole escapes, so that an escaped backslash before a `u` is not taken for one.
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(_PAIR + rb"|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def storable_json(body: bytes) -> bytes:
    """Replace text in JSON that cannot be stored; leave other bytes unchanged."""
    if not body.isascii():
        body = body.decode(errors="replace").encode()
    return _ESCAPES.sub(_storable_escape, body) if b"\\u" in body else body


def _storable_escape(escape: re.Match[bytes]) -> bytes:
    spelled = escape[0]
    if spelled == b"\\u0000":
        return NUL_SHOWN.replace("\\", "\\\\").encode()
    if _HALF.fullmatch(spelled):
        return UNREADABLE_SHOWN.encode()
    return spelled


class Allowance(Struct, frozen=True, kw_only=True):
    """A burst of messages, and a sustained rate a second."""

    burst: float
    per_second: float


class FloodLimit:
    """A token bucket for each sender, in bounded memory."""

    def __init__(self, allowance: Allowance, *, most_senders: int = 20_000) -> None:
        self._allowance = allowance
        self._most = most_senders
        # Tokens of each sender, and when they were counted.
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def admits(self, sender: Hashable, now: float) -> bool:
        """Take a token for a message; return whether there was one. `now` must not decrease."""
        burst, per_second = self._allowance.burst, self._allowance.per_second
        tokens, counted_at = self._buckets.get(sender, (burst, now))
        tokens = min(burst, tokens + (now - counted_at) * per_second)
        admitted = tokens >= 1.0
        self._buckets[sender] = (tokens - 1.0 if admitted else tokens, now)
        if len(self._buckets) > self._most:
            self._forget(now)
        return admitted

    def _forget(self, now: float) -> None:
        """Forget senders with a full bucket; all of them if that is not enough."""
        refill = self._allowance.burst / self._allowance.per_second
        kept = {
            sender: bucket for sender, bucket in self._buckets.items() if now - bucket[1] < refill
        }
        self._buckets = kept if len(kept) < self._most else {}
