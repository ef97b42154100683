"""Requests have their own connection pool: a burst of requests delays no pass."""

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import msgspec
import pytest
from headway_contract import subjects
from headway_contract.definitions import ApplyRequest
from headway_contract.operations import DrainRequest
from support.apps import nightly

pytestmark = pytest.mark.thorough

# Each request waits for the lock of its key on its own connection.
REQUESTS = {
    subjects.APPLY_REQUEST: (
        ApplyRequest(definitions=b"", key="k"),
        "ApplyRequest.ApplyAnswer k",
    ),
    subjects.DRAIN_REQUEST: (
        DrainRequest(workers=["nobody"], key="k"),
        "DrainRequest.DrainAnswer k",
    ),
}
# More requests than both pools have connections.
BURST = 30


@asynccontextmanager
async def held(world, *locks: str):
    """Hold the locks of these keys, so that requests with them wait."""
    holder = await asyncpg.connect(world.database_url)
    try:
        async with holder.transaction():
            for lock in locks:
                await holder.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", lock)
            yield
    finally:
        await holder.close()


async def test_a_burst_of_requests_delays_no_pass(world):
    app = nightly()
    await world.serve(app)
    await world.declare(app)
    scheduler = await world.scheduler(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    async with held(world, *(lock for _, lock in REQUESTS.values())):
        burst = [
            asyncio.create_task(world.broker.client.request(subject, body, timeout=60))
            for subject, (request, _) in REQUESTS.items()
            for body in [msgspec.json.encode(request)] * BURST
        ]
        waiting = (
            "SELECT count(*) >= 10 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event = 'advisory'"
        )
        await world.until(waiting)
        await world.make_due()
        scheduler.wake("tick")
        # Less than the ten seconds after which a request gives up on its lock.
        await world.until_settled(within=8)
        assert await world.value(waiting), "the burst still waits"
    replies = await asyncio.gather(*burst)
    assert len(replies) == 2 * BURST, "every request is answered"


async def test_requests_wait_for_their_turn_and_are_not_lost(world):
    """Serve all requests over one connection."""
    dispatcher = await world.dispatcher(database_request_connections=1)
    request, _ = REQUESTS[subjects.DRAIN_REQUEST]
    replies = await asyncio.gather(
        *(
            world.broker.client.request(
                subjects.DRAIN_REQUEST,
                msgspec.json.encode(msgspec.structs.replace(request, key=str(number))),
                timeout=30,
            )
            for number in range(BURST)
        )
    )
    assert len(replies) == BURST
    assert dispatcher.requests.connections == 1
