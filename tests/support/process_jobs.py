"""Jobs that run in processes of their own, for tests of the worker."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
import time
from decimal import Decimal

import msgspec
from headway import App, Fatal

app = App("processes")


class Numbers(msgspec.Struct):
    left: int
    right: int


def job(name, **options):
    return app.job(name, group="ops", process=True, **options)


@job("multiply")
def multiply(ctx, numbers: Numbers):
    """Typed input, JSON output."""
    return {"product": numbers.left * numbers.right, "pid": os.getpid(), "attempt": ctx.attempt}


@job("multiply-async")
async def multiply_async(ctx, numbers: Numbers):
    await asyncio.sleep(0)
    return numbers.left * numbers.right


@job("die")
def die(ctx, how: str):
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "sys-exit":
            sys.exit(3)
        case "fatal":
            raise Fatal("no use")
        case "error":
            raise ConnectionResetError("gone")
        case "large":
            return "x" * 300_000


@job("busy", cancel_grace=30)
def busy(ctx):
    """Never yields, and looks whether it is to stop."""
    ctx.progress(10, str(os.getpid()))
    while not ctx.cancelled:
        sum(range(1000))
    return "stopped early"


@job("deaf", cancel_grace=0.3)
def deaf(ctx):
    ctx.progress(10, str(os.getpid()))
    while True:
        sum(range(1000))


@job("deaf-async", cancel_grace=0.3)
async def deaf_async(ctx):
    ctx.progress(10, str(os.getpid()))
    await asyncio.Event().wait()


@job("chatty", capture_logging=True)
def chatty(ctx):
    ctx.log.info("begun", attempt=ctx.attempt)
    logging.getLogger("library").warning("from a library")
    ctx.progress(50, "half")
    ctx.progress(100)


@job("parent")
def parent(ctx):
    """Starts a process of its own and waits for it for ever."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    ctx.progress(1, f"{os.getpid()} {child}")
    os.waitpid(child, 0)


@job("waker")
def waker(ctx, targets: list[str]):
    for target in targets:
        ctx.activate(target, {"from": target})
    return len(targets)


@job("waker-async")
async def waker_async(ctx, targets: list[str]):
    for target in targets:
        await ctx.activate(target, {"from": target})
    return len(targets)


@job("abandon")
def abandon(ctx):
    """Dies before a process that it has forked, and that holds on to all it had open."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    ctx.progress(Decimal("12.5"), child)
    os.kill(os.getpid(), signal.SIGKILL)


@job("closing")
def closing(ctx):
    sys.stdout.close()
    sys.stderr = None
    return "closed"


@contextlib.contextmanager
def held():
    yield


@job("decorated")
@held()
def decorated(ctx):
    """Run a decorated function, whose code is in another file."""
    return "held"
