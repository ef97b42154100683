"""Detects a connection that looks alive but is dead.

The watchdog pings the server every few seconds. If several answers are missing, it drops the
connection and reconnects; if new connections do not answer either, it gives up and the process
exits, so that its supervisor starts another. While no server is reachable, the client itself tries
to reconnect and the watchdog does not give up.
"""

import asyncio
from collections.abc import Callable

from headway_tracing.log import get_logger

from headway_jetstream_kit.client import SturdyClient

log = get_logger(__name__)


PING_SECONDS = 3.0
# Missing answers. By default a dead connection is replaced within 12 s and given up after 30 s.
RECONNECT_AFTER = 3
GIVE_UP_AFTER = 9

_CONNECT_SECONDS = 3.0


async def watch(client: SturdyClient, ping_seconds: float, give_up: Callable[[], None]) -> None:
    """Watch until the client is closed or given up.

    This counts answers, not seconds: if this process was suspended, the answers have arrived when
    it continues.
    """
    missing = 0
    while not client.is_closed:
        signs = client.answers + client.failed_connects
        await _ping(client, timeout=ping_seconds / 3)
        # A connect may take longer than the interval.
        shortest = 0 if client.is_connected else _CONNECT_SECONDS
        await asyncio.sleep(max(ping_seconds, shortest))
        if client.answers + client.failed_connects != signs:
            missing = 0
            continue
        missing += 1
        if missing >= GIVE_UP_AFTER:
            give_up()
            return
        if missing % RECONNECT_AFTER == 0:
            log.warning("NATS does not answer; reconnecting", missing_answers=missing)
            await client.reconnect()


async def _ping(client: SturdyClient, *, timeout: float) -> None:
    """Ping the server; a ping that cannot be sent counts as missing."""
    try:
        async with asyncio.timeout(timeout):
            await client.send_ping()
    except Exception as error:  # noqa: BLE001 - the watchdog must survive every fault
        log.debug("NATS ping failed", error=repr(error))
