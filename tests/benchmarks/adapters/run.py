"""Run one function of an adapter: `python run.py ADAPTER FUNCTION [NUMBER]...`."""

import asyncio
import importlib
import inspect
import json
import os
import sys
import time

BULK = 1000


async def produce(adapter, work):
    """Enqueue in bulk, 1,000 jobs a call; answer with the seconds without connecting."""
    client = await adapter.connect()
    began = time.perf_counter()
    for start in range(0, work, BULK):
        jobs = [_job(number) for number in range(start, min(work, start + BULK))]
        await adapter.enqueue(client, jobs)
    _answer(time.perf_counter() - began)


async def trickle(adapter, count, per_second):
    """Send single jobs at a steady rate, each with the time just before its call."""
    client = await adapter.connect()
    start = time.perf_counter() + 0.5
    for number in range(count):
        await asyncio.sleep(max(0.0, start + number / per_second - time.perf_counter()))
        await adapter.send(client, _job(number, time.time()))


async def watch(adapter):
    """Wait for a line, then poll until no job is unfinished, and answer with the time.

    The database is not polled while the workers use it: the line says that all bodies have run.
    """
    client = await adapter.connect()
    _answer("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    while await adapter.pending(client):
        await asyncio.sleep(0.005)
    _answer(time.time())


def _job(number, sent=0.0):
    """About 100 bytes of JSON, alike for every queue."""
    return {"number": number, "sent": sent, "pad": "x" * 50}


def _answer(found):
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main(name, function, *numbers):
    """Call the function, in an event loop if it needs one."""
    adapter = importlib.import_module(name)
    own = {"produce": produce, "trickle": trickle, "watch": watch}
    arguments = [int(number) for number in numbers]
    called = own[function](adapter, *arguments) if function in own else getattr(adapter, function)()
    if inspect.isawaitable(called):
        import uvloop

        uvloop.run(called)
    # Some libraries leave threads behind that would keep the process.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
