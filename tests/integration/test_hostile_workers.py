"""A worker with minimal permissions cannot harm the leases of other workers."""

import asyncio

import pytest
import pytest_asyncio
from headway_contract import encode, subjects
from headway_contract.lifecycle import (
    DISPATCHER_KINDS,
    WORKER_STOPPED,
    Failure,
    LeaseClaimed,
    LeaseRevoked,
    RunCompleted,
    RunFailed,
)
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish
from support.desks import open_desk
from support.hostile import run_guarded_nats, stranger_on
from support.invariants import check_invariants
from support.servers import needs_embedded
from support.tiers import first_in_each_tier
from support.work_events import cancel
from support.world import until

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def nats_url(tmp_path):
    needs_embedded()
    async with run_guarded_nats(tmp_path / "nats") as url:
        yield url


@pytest_asyncio.fixture
async def stranger(nats_url):
    async with stranger_on(nats_url) as made:
        yield made


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("projected", first_in_each_tier([False, True]))
async def test_a_forged_revocation_does_not_take_a_lease_away(desk, stranger, fenced, projected):
    """Before or after the projector refused it, and with or without a fence."""
    if not projected:
        await desk.world.services[0].end_pass("projector")
    lease = desk.lease("w1")
    assert await lease.claim() == "mine"
    forged = LeaseRevoked(**desk.rights(token="guess"), reason="orphaned")
    headers = subjects.fence(desk.order.lease, lease._sequence) if fenced else None
    sequence = await stranger.say(desk.order.lease, forged, headers=headers)
    if projected:
        await desk.world.until(
            "SELECT count(*) FROM dispatcher.history WHERE refusal = 'wrong_token'"
        )
    answer = await desk.ask("w1")
    assert (answer.answer, answer.sequence) == ("mine", sequence)
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run, output="kept"))
    assert await lease.publish(done) == "stored"
    if not projected:
        await desk.world.dispatcher(orphan_timeout_seconds=600)
    await desk.world.until("SELECT output FROM dispatcher.run WHERE state = 'completed'")
    assert await desk.world.value("SELECT count(*) FROM dispatcher.run") == 1
    await check_invariants(desk.world.database)


@pytest.mark.parametrize("projected", [False, True])
async def test_a_forged_first_claim_does_not_block_a_lease(desk, stranger, projected):
    if not projected:
        await desk.world.services[0].end_pass("projector")
    junk = LeaseClaimed(**desk.rights(token="guess"), host="there")
    await stranger.say(desk.order.lease, junk, headers=subjects.fence(desk.order.lease, 0))
    sequence = await stranger.say(desk.order.lease, junk)
    if projected:
        await desk.world.until(
            "SELECT count(*) = 2 FROM dispatcher.history WHERE refusal = 'wrong_token'"
        )
    answer = await desk.ask("w1")
    assert (answer.answer, answer.sequence) == ("nothing_stored", sequence)
    rivals = [desk.lease(f"w{number}") for number in range(5)]
    claims = await asyncio.gather(*(rival.claim() for rival in rivals))
    assert sorted(claims) == ["gone"] * 4 + ["mine"]
    winner = rivals[claims.index("mine")]
    done = winner.event(RunCompleted(**winner.credentials, run=desk.run))
    assert await winner.publish(done) == "stored"
    if not projected:
        await desk.world.dispatcher(orphan_timeout_seconds=600)
    assert (await desk.settled())["worker"] == winner.worker
    await check_invariants(desk.world.database)


async def test_a_forged_claim_does_not_prevent_a_cancel(desk, stranger):
    junk = LeaseClaimed(**desk.rights(token="guess"), host="there")
    await stranger.say(desk.order.lease, junk)
    await desk.world.until("SELECT count(*) FROM dispatcher.history WHERE NOT accepted")
    await cancel(desk.world, desk.order.runs[0].work)
    assert (await desk.settled())["state"] == "cancelled"


@pytest.mark.parametrize("kind", sorted(DISPATCHER_KINDS))
async def test_a_kind_of_the_dispatcher_s_own_is_refused_and_the_worker_warned(desk, kind):
    lease = desk.lease("w1")
    assert await lease.claim() == "mine"
    failed = RunFailed(**lease.credentials, run=desk.run, failure=Failure(kind=kind))
    assert await lease.publish(lease.event(failed)) == "stored"
    await desk.world.until(
        "SELECT count(*) FROM dispatcher.history WHERE refusal = 'reserved_kind'"
    )
    assert await desk.world.value("SELECT state FROM dispatcher.run") == "in_progress"
    [warning] = (await desk.heartbeat("w1")).warnings
    assert (warning.lease, repr(kind) in warning.message) == (desk.order.lease, True)
    assert (await desk.heartbeat("w1", nonce="another")).warnings == []
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run))
    assert await lease.publish(done) == "stored"
    assert (await desk.settled())["state"] == "completed"


async def test_a_run_that_is_handed_back_again_and_again_comes_back_later_each_time(desk):
    for number in range(3):
        if number:
            await desk.take_order()
        lease = desk.lease("w1")
        assert await lease.claim() == "mine"
        stopped = Failure(kind=WORKER_STOPPED, retryable=False)
        word = RunFailed(**lease.credentials, run=desk.run, failure=stopped)
        assert await lease.publish(lease.event(word)) == "stored"
    waiting = "FROM dispatcher.history WHERE type = 'headway.work.waiting.v1'"
    await desk.world.until(f"SELECT count(*) = 3 {waiting}")
    rows = await desk.world.rows(
        "SELECT data ->> 'attempts' AS attempts, (data ->> 'not_before')::timestamptz - occurred_at"
        f" AS wait {waiting} ORDER BY id"
    )
    assert [row["attempts"] for row in rows] == ["0"] * 3
    assert [row["wait"].total_seconds() for row in rows] == [0, 1, 2]


async def test_an_unfenced_message_counts_and_its_worker_is_warned(desk, caplog):
    lease = desk.lease("w1")
    assert await lease.claim() == "mine"
    await desk.force("w1", RunCompleted(**desk.rights(), run=desk.run))
    assert (await desk.settled())["state"] == "completed"
    [warning] = (await desk.heartbeat("w1")).warnings
    assert "without the two headers" in warning.message
    assert "unfenced message accepted worker=w1" in caplog.text


@pytest.mark.parametrize("output", [b"NaN", b"1e400"])
async def test_an_unreadable_outcome_is_reported_to_its_worker_and_is_the_reason(
    world, stranger, output
):
    desk = await open_desk(world)
    lease = desk.lease("w1")
    assert await lease.claim() == "mine"
    await desk.world.until("SELECT claimed_by IS NOT NULL FROM dispatcher.lease")
    await stranger.say_raw(desk.order.lease, b"[{]")
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run, output="OUTPUT"))
    body = encode(done).replace(b'"OUTPUT"', output)
    answer = await publish(world.broker, subjects.event(desk.order.lease, "w1"), body)
    assert isinstance(answer, Stored)
    await world.until("SELECT count(*) = 2 FROM dispatcher.rejected")
    [warning] = (await desk.heartbeat("w1")).warnings
    assert f"message {answer.sequence} could not be read" in warning.message
    failure = await world.until("SELECT failure FROM dispatcher.run WHERE state = 'failed'")
    assert failure["kind"] == "orphaned"
    assert f"message {answer.sequence} could not be read" in failure["message"]


async def test_a_worker_that_names_a_lease_and_never_claims_it_loses_it(world):
    desk = await open_desk(world, stale_pending_seconds=3.0)

    async def beat():
        while True:
            reply = await desk.heartbeat("w1", leases=[desk.order.lease], slots=0)
            renewals.append(reply.renew)
            await asyncio.sleep(0.1)

    renewals = []
    beating = asyncio.create_task(beat())
    failure = await world.until("SELECT failure FROM dispatcher.run WHERE state = 'failed'")
    beating.cancel()
    assert failure["kind"] == "undelivered"
    assert renewals[0] == [], "its claim may still arrive"
    assert renewals[2] == [desk.order.lease]


@pytest.mark.parametrize("heard", [True, False])
async def test_the_reason_says_whether_a_worker_was_heard(world, heard):
    desk = await open_desk(world)
    assert await desk.lease("w1").claim() == "mine"
    if heard:
        await desk.heartbeat("w1")
    kind = "sent heartbeats without the lease" if heard else "sent no heartbeat"

    async def failure():
        if heard:
            await desk.heartbeat("w1")
        return await world.value("SELECT failure FROM dispatcher.run WHERE state = 'failed'")

    recorded = await until(failure, within=20, what="the lease is revoked")
    assert (recorded["kind"], kind in recorded["message"]) == ("orphaned", True)


async def test_an_owner_republishes_lost_events_after_a_refused_event(desk, stranger):
    lease = desk.lease("w1")
    assert await lease.claim() == "mine"
    await desk.world.until("SELECT claimed_by IS NOT NULL FROM dispatcher.lease")
    await desk.world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    sequence = await stranger.say(
        desk.order.lease, LeaseRevoked(**desk.rights(token="guess"), reason="orphaned")
    )
    answer = await desk.ask("w1")
    assert (answer.answer, answer.sequence) == ("nothing_stored", sequence)
    done = lease.event(RunCompleted(**lease.credentials, run=desk.run))
    assert await lease.publish(done) == "stored"
    assert (await desk.settled())["state"] == "completed"
    await check_invariants(desk.world.database)
