"""Heartbeats: a bad heartbeat or a hanging database does not affect other workers."""

import asyncio
from uuid import uuid4

import pytest
import pytest_asyncio
from support.world import until

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def dispatcher(world):
    return await world.dispatcher()


# A claimed lease that was last heard an hour ago.
INSERT_LEASE = """
    INSERT INTO dispatcher.lease
        (id, token, job, created_at, claimed_by, nonce, last_heard_at)
    VALUES ($1, 't', 'job', now(), $2, $3, now() - interval '1 h')
"""
BAD = [
    {"jobs": ["x\n"]},
    {"slots": 3_000_000_000},
    {"host": "a\x00b"},
    {"worker": "a.b"},
    {"worker": "_dispatcher2"},
    {"worker": "_dispatcher", "nonce": "another-dispatcher"},
    {"nonce": ""},
    {"protocol": 7},
    {"jobs": [f"job-{number}" for number in range(1_001)]},
    {"leases": ["no-uuid"]},
    {"host": "h" * 10_000},
]


async def test_a_bad_heartbeat_gets_an_error_and_the_others_are_accepted(world, dispatcher):
    replies = [world.beat(**{"worker": "bad", **fault}) for fault in BAD]
    good, *bad = await asyncio.gather(world.beat("good"), *replies)
    assert not good.error
    assert [fault for fault, reply in zip(BAD, bad, strict=True) if not reply.error] == []
    rows = await world.rows("SELECT name FROM dispatcher.worker")
    assert [row["name"] for row in rows] == ["good"]
    assert not await world.value(
        "SELECT count(*) FROM dispatcher.witness WHERE name = 'another-dispatcher'"
    )


async def test_null_stands_for_an_empty_list(world, dispatcher):
    """Go encodes a nil slice and a nil map as null."""
    reply = await world.beat(worker="go", jobs=None, leases=None, runs=None, concurrency=None)
    assert not reply.error
    assert await world.value("SELECT jobs = '{}' FROM dispatcher.worker WHERE name = 'go'")


async def test_a_database_that_hangs_does_not_silence_the_dispatcher(world, dispatcher):
    await world.beat(worker="w1")
    async with world.database.transaction() as connection:
        await connection.execute("LOCK TABLE dispatcher.worker")
        for _ in range(3):
            assert not (await world.beat(worker="w1")).error

    async def heard_again():
        await world.beat(worker="w2")
        return await world.value("SELECT count(*) FROM dispatcher.worker WHERE name = 'w2'")

    await until(heard_again, within=10, what="heartbeats are recorded again")


async def test_a_heartbeat_does_not_wait_for_a_lease_that_is_projected(world, dispatcher):
    """The next heartbeat records the lease."""
    leases = [uuid4(), uuid4()]
    for lease in leases:
        await world.value(INSERT_LEASE, lease, "w1", "n")
    heard = "SELECT last_heard_at > now() - interval '1 m' FROM dispatcher.lease WHERE id = $1"
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM dispatcher.lease WHERE id = $1 FOR UPDATE", leases[0])
        await world.beat("w1", nonce="n", leases=leases)
        assert [await world.value(heard, lease) for lease in leases] == [False, True]
    await world.beat("w1", nonce="n", leases=leases)
    assert await world.value(heard, leases[0])


async def test_two_processes_with_one_name_are_both_heard(world, dispatcher):
    leases = [uuid4(), uuid4()]
    for lease, nonce in zip(leases, ("n1", "n2"), strict=True):
        await world.value(INSERT_LEASE, lease, "twin", nonce)
    await asyncio.gather(
        *(
            world.beat("twin", nonce=nonce, leases=[lease])
            for lease, nonce in zip(leases, ("n1", "n2"), strict=True)
        )
    )
    assert await world.value(
        "SELECT bool_and(last_heard_at > now() - interval '1 min') FROM dispatcher.lease"
    )
