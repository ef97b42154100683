"""Runs a plain function in a thread of its own."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def run_in_thread(function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """Call a function in a thread of its own; cancelling the future does not stop it.

    Not in a pool: the interpreter waits for a pool's threads when it exits, and a body that
    ignores a request to stop would block the exit for ever.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, raised: BaseException | None) -> None:
        if future.done():
            return
        if raised is None:
            future.set_result(result)
        else:
            future.set_exception(raised)

    def call() -> None:
        result: Any = None
        raised: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - the caller receives it, whatever it is
            # No future can hold a StopIteration, and a SystemExit must end only this thread.
            replaced = isinstance(error, StopIteration) or not isinstance(error, Exception)
            raised = RuntimeError(repr(error)) if replaced else error
        with suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=call, name=f"job-{function.__name__}", daemon=True).start()
    return future
