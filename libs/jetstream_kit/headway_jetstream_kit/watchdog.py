"""Watches for a connection that looks alive and is dead.

The watchdog pings the server every few seconds. If answers are missing for a while, it drops the
connection and reconnects; if new connections do not answer either, it gives up and the process
ends, so that its supervisor starts another. While no server is reachable, the client itself keeps
trying and the watchdog does not give up.
"""

import asyncio
from collections.abc import Callable

from headway_tracing.log import get_logger
from msgspec import Struct

from headway_jetstream_kit.client import SturdyClient

log = get_logger(__name__)


class Patience(Struct, frozen=True, kw_only=True):
    """The interval of pings in seconds, and how many answers may be missing.

    By default a dead connection is replaced after at most 12 s and given up after 30 s.
    """

    ask_every: float = 3.0
    anew_after: int = 3
    give_up_after: int = 9


PATIENCE = Patience()

_CONNECT_SECONDS = 3.0


async def watch(client: SturdyClient, patience: Patience, give_up: Callable[[], None]) -> None:
    """Watch until the client is closed or given up.

    This counts answers, not seconds: if this process itself was suspended, the answers are there
    when it continues.
    """
    missing = 0
    while not client.is_closed:
        signs = client.answers + client.failed_connects
        await _ping(client, timeout=patience.ask_every / 3)
        await asyncio.sleep(_rest(client, patience))
        if client.answers + client.failed_connects != signs:
            missing = 0
            continue
        missing += 1
        if missing >= patience.give_up_after:
            give_up()
            return
        if missing % patience.anew_after == 0:
            log.warning("NATS does not answer; reconnecting", missing_answers=missing)
            await client.reconnect()


def _rest(client: SturdyClient, patience: Patience) -> float:
    """Return the interval, or the time that a connect takes if that is longer."""
    return patience.ask_every if client.is_connected else max(patience.ask_every, _CONNECT_SECONDS)


async def _ping(client: SturdyClient, *, timeout: float) -> None:
    """Ping the server; a ping that cannot be sent counts as missing."""
    try:
        async with asyncio.timeout(timeout):
            await client.send_ping()
    except Exception as error:  # noqa: BLE001 - the watchdog must survive every fault
        log.debug("NATS ping failed", error=repr(error))
