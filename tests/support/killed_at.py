"""Run the `headway` command and have it killed, `kill -9`, at one point of its work.

`python killed_at.py <point> <command …>`. The services know nothing of this: the functions that
they call at these points are wrapped from outside, in this process only.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import headway_relay.relay as relay
from headway.worker import runtime
from headway.worker.leases import Lease
from headway_cli.main import main
from headway_jetstream_kit import Stored, consume
from headway_scheduler.fire import tick


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before_commit() -> None:
    """The decision is written, with its event, and not committed."""
    write = tick.record

    async def wrapped(*arguments: Any, **more: Any) -> Any:
        advanced = await write(*arguments, **more)
        if advanced.queued:
            die()
        return advanced

    tick.record = wrapped  # type: ignore[assignment]


def before_publish(prefix: str) -> Callable[[], None]:
    """Exit after the decision is committed and before it is published."""

    def install() -> None:
        publish = relay.publish

        async def wrapped(broker: Any, subject: str, body: bytes, **more: Any) -> Any:
            if subject.startswith(prefix):
                die()
            return await publish(broker, subject, body, **more)

        relay.publish = wrapped  # type: ignore[assignment]

    return install


def after_publish(prefix: str) -> Callable[[], None]:
    """The broker has acknowledged it, and the outbox still holds it."""

    def install() -> None:
        publish = relay.publish

        async def wrapped(broker: Any, subject: str, body: bytes, **more: Any) -> Any:
            answer = await publish(broker, subject, body, **more)
            if subject.startswith(prefix) and isinstance(answer, Stored):
                die()
            return answer

        relay.publish = wrapped  # type: ignore[assignment]

    return install


def before_ack(prefix: str) -> Callable[[], None]:
    """Exit after a message is committed and before it is acknowledged."""

    def install() -> None:
        ack = consume.ack

        async def wrapped(broker: Any, messages: Any) -> None:
            if any(message.subject.startswith(prefix) for message in messages):
                die()
            await ack(broker, messages)

        consume.ack = wrapped  # type: ignore[assignment]

    return install


def claimed() -> None:
    """The worker has claimed the lease, and not acknowledged the order."""

    async def wrapped(broker: Any, messages: Any) -> None:
        die()

    runtime.ack = wrapped  # type: ignore[assignment]


def before_outcome() -> None:
    """Exit after the body has returned and before its outcome is published."""

    async def wrapped(self: Lease, *events: Any) -> Any:
        die()

    Lease.publish = wrapped  # type: ignore[method-assign]


def after_outcome() -> None:
    """The outcome is stored, and the worker has not heard so."""
    publish: Callable[..., Awaitable[Any]] = Lease.publish

    async def wrapped(self: Lease, *events: Any) -> Any:
        await publish(self, *events)
        die()

    Lease.publish = wrapped  # type: ignore[method-assign]


POINTS: dict[str, Callable[[], None]] = {
    "scheduler-before-commit": before_commit,
    "scheduler-before-publish": before_publish("headway.work."),
    "scheduler-after-publish": after_publish("headway.work."),
    "scheduler-before-ack": before_ack("headway.settled."),
    "dispatcher-before-ack-of-work": before_ack("headway.work."),
    "dispatcher-before-order": before_publish("headway.run."),
    "dispatcher-after-order": after_publish("headway.run."),
    "dispatcher-before-ack-of-event": before_ack("headway.event."),
    "worker-claimed": claimed,
    "worker-before-outcome": before_outcome,
    "worker-after-outcome": after_outcome,
}

if __name__ == "__main__":
    POINTS[sys.argv[1]]()
    sys.argv[1:] = sys.argv[2:]
    main()
