"""A watch over a connection that may look alive and be dead.

Every few seconds the server is asked for a sign of life. A connection that gives none for a
while is cut off and made anew; if new connections give none either, the connection is given up,
and the process with it: whoever runs it starts another. A server that cannot be reached at all
deceives nobody: the client keeps trying, says so, and is not given up.
"""

import asyncio
from collections.abc import Callable

from headway_tracing.log import get_logger
from msgspec import Struct

from headway_jetstream_kit.client import SturdyClient

log = get_logger(__name__)


class Patience(Struct, frozen=True, kw_only=True):
    """How often to ask for a sign of life, and how many answers may be missing.

    By the default a dead connection is made anew after 12 s at most and given up after 30 s.
    """

    ask_every: float = 3.0
    anew_after: int = 3
    give_up_after: int = 9


PATIENCE = Patience()

_A_TRY_SECONDS = 3.0


async def watch(client: SturdyClient, patience: Patience, give_up: Callable[[], None]) -> None:
    """Watch until the client is closed, or until it is given up.

    Answers are counted, not seconds: if this process itself was held up, the answers are there
    when it goes on, and nobody has missed anything.
    """
    missing = 0
    while not client.is_closed:
        signs = client.answers + client.failed_tries
        await _ask(client, timeout=patience.ask_every / 3)
        await asyncio.sleep(_rest(client, patience))
        if client.answers + client.failed_tries != signs:
            missing = 0
            continue
        missing += 1
        if missing >= patience.give_up_after:
            give_up()
            return
        if missing % patience.anew_after == 0:
            log.warning("NATS does not answer; reconnecting", missing_answers=missing)
            await client.begin_anew()


def _rest(client: SturdyClient, patience: Patience) -> float:
    """Whoever is about to connect gets the time that a try may take, however impatient we are."""
    return patience.ask_every if client.is_connected else max(patience.ask_every, _A_TRY_SECONDS)


async def _ask(client: SturdyClient, *, timeout: float) -> None:
    """Ping the server; a ping that cannot be sent counts as missing."""
    try:
        async with asyncio.timeout(timeout):
            await client.ask_for_answer()
    except Exception as error:  # noqa: BLE001 - a watchdog that dies of what it watches is none
        log.debug("NATS ping failed", error=repr(error))
