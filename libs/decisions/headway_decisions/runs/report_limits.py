"""Bound everything that workers send: sizes, text that can be stored, and rates of messages.

Workers in any language know the limits and may not keep them. Long text is cut. An output that is
too large cannot be cut, so its run fails. JSON may contain text that PostgreSQL does not store (NUL
characters and halves of surrogate pairs); it is replaced by visible text.

Progress and log lines are published without a fence: they may be lost, duplicated, late or forged.
The token keeps strangers out, and the numbers make order and duplicates harmless.
"""

import re
from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import Event, lifecycle
from headway_contract import fields as limits
from headway_contract import worker_protocol as protocol
from headway_contract.worker_protocol import LogLine, Progress
from msgspec import Struct, structs

_HOST_LIMIT = 255


def bound_event(event: Event, message_size: int) -> Iterator[Event]:
    """Cut an event to the limits; `message_size` is the size of its message in bytes.

    Runs of a `RunsCompleted` whose output is too large fail, by events of their own.
    """
    data = event.data
    if isinstance(data, lifecycle.RunsCompleted):
        # Measuring an output is expensive, and few messages are large.
        if message_size > limits.OUTPUT_LIMIT:
            yield from _bound_outputs(event, data)
        else:
            yield event
        return
    match data:
        case lifecycle.RunFailed(failure=failure):
            cut = structs.replace(
                failure,
                kind=failure.kind[: limits.KIND_LIMIT],
                kinds=[kind[: limits.KIND_LIMIT] for kind in failure.kinds[: limits.KINDS_LIMIT]],
                message=failure.message[: limits.MESSAGE_LIMIT],
                stack=failure.stack[-limits.STACK_LIMIT :],
            )
            data = structs.replace(data, failure=cut)
        case lifecycle.RunCancelled(reason=reason) if len(reason) > limits.MESSAGE_LIMIT:
            data = structs.replace(data, reason=reason[: limits.MESSAGE_LIMIT])
        case lifecycle.LeaseClaimed(host=host) if len(host) > _HOST_LIMIT:
            data = structs.replace(data, host=host[:_HOST_LIMIT])
        case lifecycle.RunCompleted() if message_size > limits.OUTPUT_LIMIT:
            problem = _too_large(data.output)
            data = data if problem is None else _failed(data, data.run, problem)
    yield event if data is event.data else structs.replace(event, type=data.type, data=data)


def _bound_outputs(event: Event, completed: lifecycle.RunsCompleted) -> Iterator[Event]:
    failures = {run.run: _too_large(run.output) for run in completed.runs}
    fitting = [run for run in completed.runs if failures[run.run] is None]
    if fitting:
        yield structs.replace(event, data=structs.replace(completed, runs=fitting))
    for run in completed.runs:
        failure = failures[run.run]
        if failure is not None:
            data = _failed(completed, run.run, failure)
            yield structs.replace(event, id=f"{event.id}.{run.run}", type=data.type, data=data)


def _too_large(output: Any) -> lifecycle.Failure | None:
    size = len(msgspec.json.encode(output))
    if size <= limits.OUTPUT_LIMIT:
        return None
    return lifecycle.Failure(
        kind=limits.OUTPUT_TOO_LARGE,
        message=f"the output has {size} bytes, more than {limits.OUTPUT_LIMIT}: "
        "store it elsewhere and return where it is found",
        retryable=False,
    )


def _failed(
    data: lifecycle.LeaseEvent, run: UUID, failure: lifecycle.Failure
) -> lifecycle.RunFailed:
    lease, token, nonce = data.lease, data.token, data.nonce
    return lifecycle.RunFailed(lease=lease, token=token, nonce=nonce, run=run, failure=failure)


# The last report of a run may arrive after its outcome.
LATE = timedelta(minutes=1)

Refusal = Literal["unknown_run", "wrong_token", "not_the_claimant", "too_late"]


class News(Struct, frozen=True, kw_only=True):
    """A report, with the worker and the lease of its subject."""

    worker: str
    lease: UUID
    progress: Progress


class Teller(Struct, frozen=True, kw_only=True):
    """A known run, with the bytes of its log."""

    run: UUID
    lease: UUID
    token: str
    claimed_by: str | None = None
    ended_at: datetime | None = None
    log_bytes: int = 0


def refusal(teller: Teller | None, news: News, *, now: datetime) -> Refusal | None:
    """Return why a report is not kept, or `None`."""
    if teller is None or teller.lease != news.lease or news.progress.lease != news.lease:
        return "unknown_run"
    if teller.token != news.progress.token:
        return "wrong_token"
    if teller.claimed_by not in (None, news.worker):
        return "not_the_claimant"
    if teller.ended_at is not None and teller.ended_at < now - LATE:
        return "too_late"
    return None


def digest(teller: Teller, reports: Iterable[Progress]) -> Progress:
    """Combine the accepted reports of a run: the latest progress, and the lines that fit."""
    reports = sorted(reports, key=lambda report: report.number)
    latest = reports[-1]
    lines = {line.number: _cut(line) for report in reports for line in report.lines}
    room = protocol.LOG_BYTES_LIMIT - teller.log_bytes
    kept = []
    for number in sorted(lines):
        size = size_of(lines[number])
        if number <= protocol.LINES_LIMIT and size <= room:
            kept.append(lines[number])
            room -= size
    return structs.replace(
        latest,
        message=None if latest.message is None else latest.message[: protocol.PROGRESS_LIMIT],
        lines=kept,
        dropped=max(*(report.dropped for report in reports), len(lines) - len(kept)),
    )


def size_of(line: LogLine) -> int:
    """Return the size of a line against the log limit."""
    return len(line.message.encode()) + len(msgspec.json.encode(line.fields))


def _cut(line: LogLine) -> LogLine:
    fields, size = line.fields, len(msgspec.json.encode(line.fields))
    if size > protocol.FIELDS_LIMIT:
        fields = {"fields_left_out": f"{size} bytes are more than {protocol.FIELDS_LIMIT}"}
    level = line.level if line.level in protocol.LEVELS else "info"
    message = line.message[: protocol.LINE_LIMIT]
    return structs.replace(line, level=level, message=message, fields=fields)


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
        return rb"\\0"
    return "\ufffd".encode() if _HALF.fullmatch(spelled) else spelled


class FloodLimit:
    """A token bucket for each sender: a burst, and a sustained rate; in bounded memory."""

    def __init__(self, *, burst: float, per_second: float, most_senders: int = 20_000) -> None:
        self._burst, self._per_second, self._most = burst, per_second, most_senders
        # Tokens of each sender, and when they were counted.
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def admits(self, sender: Hashable, now: float) -> bool:
        """Take a token for a message; return whether there was one. `now` must not decrease."""
        burst, per_second = self._burst, self._per_second
        tokens, counted_at = self._buckets.get(sender, (burst, now))
        tokens = min(burst, tokens + (now - counted_at) * per_second)
        admitted = tokens >= 1.0
        self._buckets[sender] = (tokens - 1.0 if admitted else tokens, now)
        if len(self._buckets) > self._most:
            # Forget senders with a full bucket; all of them if that is not enough.
            kept = {
                sender: bucket
                for sender, bucket in self._buckets.items()
                if now - bucket[1] < burst / per_second
            }
            self._buckets = kept if len(kept) < self._most else {}
        return admitted
