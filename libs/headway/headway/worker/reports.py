"""Progress and log lines of a run, published a few times a second.

They travel over core NATS without a fence: they may be lost, and no decision depends on them.
Their size is bounded, and dropped lines are counted.
"""

import asyncio
import math
import threading
from typing import Any

import msgspec
from headway_clock import utc_now
from headway_contract import subjects, worker_protocol
from headway_contract.orders import OrderedRun
from headway_jetstream_kit import NatsError
from headway_tracing.log import get_logger

from headway.define.jobs import holds_nul
from headway.worker.leases import Lease
from headway.worker.outcomes import storable

log = get_logger(__name__)

_DELAY_SECONDS = 0.25
# A message at a time, well below what the broker takes.
_LINES_AT_ONCE = 100


class Reports:
    """The reporter of one run. Any thread may call it; the event loop publishes."""

    # Defaults of the class, because most runs report nothing.
    _publishing: asyncio.Lock | None = None
    _percent: float | None = None
    _message: str | None = None
    _changed = False
    _line_number = 0
    _bytes_left = worker_protocol.LOG_BYTES_LIMIT
    _dropped = 0
    _number = 0
    _timer: asyncio.TimerHandle | None = None
    _soon: asyncio.Task[None] | None = None
    _closed = False

    def __init__(self, ordered: OrderedRun, lease: Lease) -> None:
        self._ordered = ordered
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._lines: list[worker_protocol.LogLine] = []

    def progress(self, percent: float | None, message: str | None) -> None:
        """Keep how far the run is; `None` keeps the last value."""
        percent, message = bound_progress(percent, message)
        with self._lock:
            self._percent = self._percent if percent is None else percent
            self._message = self._message if message is None else message
            self._changed = True
        self._wake()

    def line(self, level: worker_protocol.Level, message: str, fields: dict[str, Any]) -> None:
        """Keep one log line, if the run has room for it."""
        at, (message, fields) = utc_now(), bound_line(message, fields)
        size = len(message.encode()) + len(msgspec.json.encode(fields))
        with self._lock:
            self._changed = True
            if self._line_number >= worker_protocol.LINES_LIMIT or size > self._bytes_left:
                self._dropped += 1
            else:
                self._line_number += 1
                self._bytes_left -= size
                line = worker_protocol.LogLine(
                    number=self._line_number, at=at, level=level, message=message, fields=fields
                )
                self._lines.append(line)
        self._wake()

    async def close(self) -> None:
        """Publish the rest, before the run's outcome."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._number or self._changed:
            await self._publish()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._publish_soon)
        except RuntimeError:
            return  # the event loop is closed

    def _publish_soon(self) -> None:
        """Publish after a short delay, together with later reports."""

        def begin() -> None:
            self._timer = None
            self._soon = self._loop.create_task(self._publish())

        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_DELAY_SECONDS, begin)

    async def _publish(self) -> None:
        self._publishing = self._publishing or asyncio.Lock()
        async with self._publishing:
            while (report := self._take()) is not None:
                try:
                    subject = subjects.progress(report.lease, self._lease.worker)
                    client = self._lease.broker.client
                    await client.publish(subject, msgspec.json.encode(report))
                except (OSError, NatsError) as error:
                    log.debug("progress not published", run=self._ordered.run, error=error)
                    with self._lock:
                        self._dropped += len(report.lines)

    def _take(self) -> worker_protocol.Progress | None:
        with self._lock:
            if not self._changed:
                return None
            lines, self._lines = self._lines[:_LINES_AT_ONCE], self._lines[_LINES_AT_ONCE:]
            self._changed = bool(self._lines)
            self._number += 1
            return worker_protocol.Progress(
                lease=self._lease.order.lease,
                token=self._lease.order.token,
                run=self._ordered.run,
                number=self._number,
                at=utc_now(),
                percent=self._percent,
                message=self._message,
                lines=lines,
                dropped=self._dropped,
            )


def bound_progress(percent: float | None, message: str | None) -> tuple[float | None, str | None]:
    """Clamp a percentage and cut a message to what may be kept."""
    if percent is not None:
        if math.isnan(percent):
            raise ValueError("progress is nan: pass a percentage from 0 to 100")
        percent = min(max(float(percent), 0.0), 100.0)
    return percent, None if message is None else _cut(str(message), worker_protocol.PROGRESS_LIMIT)


def bound_line(message: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Cut a log line to what may be kept."""
    return _cut(message, worker_protocol.LINE_LIMIT), _as_json(fields)


def _cut(text: str, most: int) -> str:
    text = storable(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """Convert fields to JSON values; other types become text."""
    try:
        encoded = msgspec.json.encode(fields, enc_hook=str)
    except Exception as error:  # noqa: BLE001 - a line that cannot be kept must not fail the job
        return {"fields_left_out": _cut(f"{type(error).__name__}: {error}", 200)}
    most = worker_protocol.FIELDS_LIMIT
    if len(encoded) > most:
        return {"fields_left_out": f"{len(encoded)} bytes are more than {most}"}
    if holds_nul(encoded):
        return {"fields_left_out": "a NUL character cannot be stored"}
    kept: dict[str, Any] = msgspec.json.decode(encoded)
    return kept
