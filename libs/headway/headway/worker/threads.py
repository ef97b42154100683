"""Plain functions in threads that do not keep a stopping process alive."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


def run_in_thread(function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """Call a function in a thread of its own; cancelling the future does not stop it.

    A pool would do the same, but the interpreter waits for a pool's threads when it exits,
    and a body that does not look whether it was asked to stop would hold it up for ever.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            settle(outcome)

    def call() -> None:
        report: Callable[[Any], None]
        outcome: Any
        try:
            result = context.run(function, *arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears it
            # No future can hold a StopIteration.
            stop = isinstance(error, StopIteration)
            report, outcome = future.set_exception, RuntimeError(repr(error)) if stop else error
        except BaseException as error:  # noqa: BLE001 - such as SystemExit: it ends this thread
            report, outcome = future.set_exception, RuntimeError(repr(error))
        else:
            report, outcome = future.set_result, result
        try:
            loop.call_soon_threadsafe(tell, report, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody is left who would listen

    threading.Thread(target=call, name=f"job-{function.__name__}", daemon=True).start()
    return future
