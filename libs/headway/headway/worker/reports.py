"""What a run tells of itself while it runs: gathered, and published a few times a second.

Core NATS, unfenced: it may be lost, and nothing is decided by it. What a run may keep is
bounded; what is dropped is counted and said.
"""

import asyncio
import logging
import math
import threading
from typing import Any

import msgspec
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.orders import OrderedRun
from headway_contract.progress import (
    FIELDS_LIMIT,
    LINE_LIMIT,
    LINES_LIMIT,
    LOG_BYTES_LIMIT,
    MESSAGE_LIMIT,
    Level,
    LogLine,
    Progress,
)
from headway_jetstream_kit import Broker
from nats.errors import Error as NatsError

from headway.define.jobs import holds_nul
from headway.worker.failures import storable
from headway.worker.leases import Lease

logger = logging.getLogger(__name__)

_REST_SECONDS = 0.25
# A message at a time, well below what the broker takes.
_LINES_AT_ONCE = 100


class Reports:
    """The reporter of one run. Any thread may tell it something; the loop publishes."""

    def __init__(self, broker: Broker, ordered: OrderedRun, *, lease: Lease) -> None:
        self._broker = broker
        self._ordered = ordered
        self._subject = subjects.progress(lease.order.lease, lease.worker)
        self._order = lease.order
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._publishing = asyncio.Lock()
        self._percent: float | None = None
        self._message: str | None = None
        self._news = False
        self._lines: list[LogLine] = []
        self._line_number = 0
        self._bytes_left = LOG_BYTES_LIMIT
        self._dropped = 0
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Task[None] | None = None
        self._closed = False

    def progress(self, percent: float | None, message: str | None) -> None:
        """How far the run is; what is none stays as it was."""
        percent, message = bounded_progress(percent, message)
        with self._lock:
            self._percent = self._percent if percent is None else percent
            self._message = self._message if message is None else message
            self._news = True
        self._wake()

    def line(self, level: Level, message: str, fields: dict[str, Any]) -> None:
        """One line of the log, unless the run has no room for more."""
        at, (message, fields) = utc_now(), bounded(message, fields)
        size = len(message.encode()) + len(msgspec.json.encode(fields))
        with self._lock:
            self._news = True
            if self._line_number >= LINES_LIMIT or size > self._bytes_left:
                self._dropped += 1
            else:
                self._line_number += 1
                self._bytes_left -= size
                self._lines.append(
                    LogLine(
                        number=self._line_number, at=at, level=level, message=message, fields=fields
                    )
                )
        self._wake()

    async def close(self) -> None:
        """Publish what is left, so that it is told before the run's outcome."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._number or self._news:
            await self._publish()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._publish_soon)
        except RuntimeError:
            return  # the loop is closed: nobody is left who would publish

    def _publish_soon(self) -> None:
        """After a rest: what else is told in the meantime goes along."""
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(_REST_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._soon = self._loop.create_task(self._publish())

    async def _publish(self) -> None:
        async with self._publishing:
            while (news := self._take()) is not None:
                try:
                    await self._broker.client.publish(self._subject, msgspec.json.encode(news))
                except (OSError, NatsError) as error:
                    logger.debug("run %s: progress not told: %s", self._ordered.run, error)
                    with self._lock:
                        self._dropped += len(news.lines)

    def _take(self) -> Progress | None:
        with self._lock:
            if not self._news:
                return None
            lines, self._lines = self._lines[:_LINES_AT_ONCE], self._lines[_LINES_AT_ONCE:]
            self._news = bool(self._lines)
            self._number += 1
            return Progress(
                lease=self._order.lease,
                token=self._order.token,
                run=self._ordered.run,
                number=self._number,
                at=utc_now(),
                percent=self._percent,
                message=self._message,
                lines=lines,
                dropped=self._dropped,
            )


def bounded_progress(percent: float | None, message: str | None) -> tuple[float | None, str | None]:
    """How far a run is as it may be kept, whatever kind of number or word it was told by."""
    if percent is not None:
        if math.isnan(percent):
            raise ValueError("progress takes a percentage from 0 to 100, and nan is none")
        percent = min(max(float(percent), 0.0), 100.0)
    return percent, None if message is None else _cut(str(message), MESSAGE_LIMIT)


def bounded(message: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A line of a length that may be kept."""
    return _cut(message, LINE_LIMIT), _as_json(fields)


def _cut(text: str, most: int) -> str:
    text = storable(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON has them; what JSON does not know is written as text."""
    try:
        encoded = msgspec.json.encode(fields, enc_hook=str)
    except Exception as error:  # noqa: BLE001 - a line that cannot be told must not fail the job
        return {"fields_left_out": _cut(f"{type(error).__name__}: {error}", 200)}
    if len(encoded) > FIELDS_LIMIT:
        return {"fields_left_out": f"{len(encoded)} bytes are more than {FIELDS_LIMIT}"}
    if holds_nul(encoded):
        return {"fields_left_out": "a NUL character cannot be stored"}
    kept: dict[str, Any] = msgspec.json.decode(encoded)
    return kept
