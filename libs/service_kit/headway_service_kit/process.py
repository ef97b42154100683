"""Signals, logging and retries of a program."""

import asyncio
import gc
import logging
import math
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

import uvloop
from headway_clock import jitter, monotonic
from headway_tracing.log import TEXT_FORMAT, JsonFormatter, get_logger

log = get_logger(__name__)

LogForm = Literal["auto", "json", "text"]

Result = TypeVar("Result")


def log_to_stderr(*, debug: bool = False, form: LogForm = "auto") -> None:
    """Write log entries to standard error: text at a terminal, else one JSON object a line."""
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(TEXT_FORMAT) if is_text else JsonFormatter())
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True
    )
    for noisy in ("asyncio", "httpcore", "httpx", "nats", "opentelemetry", "urllib3", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


# Messages and rows make many objects and few cycles, so a collection rarely finds anything.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program's coroutine on uvloop."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    return uvloop.run(main)


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return stop


async def keep_trying(
    attempt: Callable[[], Awaitable[Result]],
    *,
    what: str,
    faults: tuple[type[Exception], ...],
    give_up_after: int | None = None,
    within: float = math.inf,
) -> Result:
    """Repeat an attempt with growing pauses, at most `give_up_after` times and for so long."""
    pause, tries, deadline = 0.5, 0, monotonic() + within
    while True:
        tries += 1
        try:
            return await attempt()
        except faults as error:
            if tries == give_up_after or monotonic() >= deadline:
                raise
            delay = min(pause * (1 + jitter(0.2)), max(0.0, deadline - monotonic()))
            log.warning("retrying", action=what, error=error, delay_seconds=round(delay, 1))
        await asyncio.sleep(delay)
        pause = min(pause * 2, 15.0)
