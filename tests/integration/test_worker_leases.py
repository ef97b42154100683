"""Leases of a worker: renewals, claims and outcomes, also of workers that are not ours."""

import asyncio
from uuid import uuid4

import msgspec
import pytest
from headway.worker import leases
from headway_clock import utc_now
from headway_contract import decode, encode, event, subjects
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import LeaseClaimed, LeaseRenewed, RunCompleted, RunFailed
from headway_contract.worker_protocol import CancelPush
from headway_dispatcher.settings import DispatcherSettings
from headway_jetstream_kit import Refused, Stored
from headway_jetstream_kit.publish import NoAnswer, publish
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.work_events import app_with, order_puller, queue, until_run
from support.world import until


async def test_a_long_lease_is_renewed_so_that_its_last_message_stays(world, monkeypatch):
    monkeypatch.setattr(DispatcherSettings, "renew_seconds", property(lambda _: 0.2))
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()
        return "done"

    worker = await world.serve(app_with(job))
    await queue(world)
    await world.until(
        "SELECT count(*) >= 3 FROM dispatcher.history WHERE type = $1 AND accepted",
        LeaseRenewed.type,
    )
    [runner] = worker._runners.values()
    assert sum(isinstance(event.data, LeaseRenewed) for event in runner.lease._published) == 1
    await world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    release.set()
    assert (await until_run(world, "completed"))["output"] == "done"
    await check_invariants(world.database)


async def test_a_renewal_that_finds_an_empty_stream_republishes_all_events(world, monkeypatch):
    monkeypatch.setattr(DispatcherSettings, "renew_seconds", property(lambda _: 0.2))
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()

    worker = await world.serve(app_with(job))
    await queue(world)
    await until_run(world, "in_progress")
    await world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")
    [runner] = worker._runners.values()

    async def stored():
        answer = await runner.lease._ask()
        return answer.answer == "mine" and answer.sequence

    await until(stored, within=10, what="the broker knows the lease again")
    release.set()
    await until_run(world, "completed")
    kinds = await world.rows("SELECT type FROM dispatcher.history WHERE run_id IS NOT NULL")
    assert len(kinds) == 3, "republished events do not count twice"
    await check_invariants(world.database)


async def test_a_renewal_that_finds_the_lease_lost_stops_its_run(world, monkeypatch):
    monkeypatch.setattr(DispatcherSettings, "renew_seconds", property(lambda _: 0.2))
    stopped = asyncio.Event()

    async def job(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def lost(self):
        self.lose()
        return "lost"

    monkeypatch.setattr(leases.Lease, "renew", lost)
    await world.serve(app_with(job))
    await queue(world)
    await asyncio.wait_for(stopped.wait(), 10)


class Stranger:
    """A worker in another language that ignores limits."""

    def __init__(self, world, order) -> None:
        self.world = world
        self.order = order

    @classmethod
    async def takes(cls, world) -> "Stranger":
        await world.beat("stranger", slots=5)
        await queue(world)
        puller = await order_puller(world, "job")
        [message] = await puller.fetch(1, wait=15)
        [found] = decode(message.body)
        return cls(world, found.data)

    async def say(self, data, worker: str = "stranger") -> None:
        body = encode(
            event(data, id=uuid4(), source=f"worker/{worker}", subject="x", time=utc_now())
        )
        subject = subjects.event(self.order.lease, worker)
        assert isinstance(await publish(self.world.broker, subject, body), Stored)

    def rights(self, nonce: str = "n") -> dict:
        return {"lease": self.order.lease, "token": self.order.token, "nonce": nonce}

    @property
    def run(self):
        return self.order.runs[0].run


async def test_an_output_that_is_too_large_fails_from_any_worker(world):
    await world.dispatcher()
    stranger = await Stranger.takes(world)
    output = "x" * OUTPUT_LIMIT
    await stranger.say(RunCompleted(**stranger.rights(), run=stranger.run, output=output))
    row = await until_run(world, "failed")
    assert (row["failure"]["kind"], row["output"]) == ("output_too_large", None)
    assert await world.value("SELECT outcome FROM dispatcher.work_queue") == "dead_lettered"
    await check_invariants(world.database)


async def test_a_failure_that_is_too_long_is_cut_from_any_worker(world):
    await world.dispatcher()
    stranger = await Stranger.takes(world)
    failure = {
        "kind": "k" * 1000,
        "message": "m" * 100_000,
        "stack": "s" * 100_000 + "end",
        "kinds": ["k"] * 1000,
    }
    await stranger.say(RunFailed(**stranger.rights(), run=stranger.run, failure=failure))
    kept = (await until_run(world, "failed"))["failure"]
    assert {name: len(kept[name]) for name in failure} == {
        "kind": 255,
        "message": 4096,
        "stack": 16384,
        "kinds": 32,
    }
    assert kept["stack"].endswith("end")
    await check_invariants(world.database)


async def test_a_claim_that_does_not_count_is_answered_at_once(world):
    """The stream lost the first claim and accepted a second one."""
    await world.dispatcher(orphan_timeout_seconds=600)
    stranger = await Stranger.takes(world)
    await stranger.say(LeaseClaimed(**stranger.rights(), host="here"))
    await world.until("SELECT count(*) FROM dispatcher.lease WHERE claimed_by = 'stranger'")
    pushed: asyncio.Queue[CancelPush] = asyncio.Queue()

    async def on_push(message):
        pushed.put_nowait(msgspec.json.decode(message.data, type=CancelPush))

    for name in ("rival", "stranger"):
        await world.broker.client.subscribe(subjects.cancel(name), cb=on_push)
    await stranger.say(LeaseClaimed(**stranger.rights("another"), host="here"))
    await stranger.say(LeaseClaimed(**stranger.rights("rival"), host="there"), worker="rival")
    push = await asyncio.wait_for(pushed.get(), 10)
    assert [(released.lease, released.reason) for released in push.release] == [
        (stranger.order.lease, "another")
    ]
    assert pushed.empty(), "a process of the same name would receive it, too"


async def test_a_worker_releases_a_lease_on_request(world, monkeypatch):
    """The worker stops the body and publishes nothing more."""
    stopped = asyncio.Event()

    async def job(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await world.dispatcher(orphan_timeout_seconds=600)
    worker = await world.worker(app_with(job), worker_name="w1")
    await queue(world)
    await until_run(world, "in_progress")
    [lease] = worker._runners
    push = CancelPush(release=[{"lease": lease, "reason": "another"}])
    await world.broker.client.publish(subjects.cancel("w1"), msgspec.json.encode(push))
    await asyncio.wait_for(stopped.wait(), 10)

    async def forgotten():
        return not worker._runners

    await until(forgotten, within=10, what="the worker dropped the lease")
    assert await world.value("SELECT state FROM dispatcher.run") == "in_progress"


@pytest.mark.parametrize(
    "answer",
    first_in_each_tier(
        [
            Refused(400, subjects.UNDECIDED_SEQUENCE, "undecided in a replicated stream"),
            Refused(503, 0, "no leader"),
            NoAnswer("the message was lost"),
            Refused(400, subjects.WRONG_SEQUENCE, "so it says, and nothing is stored"),
        ]
    ),
    ids=["undecided", "no-leader", "lost", "wrong-sequence"],
)
async def test_a_claim_with_an_answer_that_decides_nothing_is_made_again(
    world, monkeypatch, answer
):
    """The order is not acknowledged: it is redelivered, or the claim is repeated."""
    ran, answers = [], [answer, answer]

    async def job(ctx):
        ran.append(ctx.run)

    async def first_undecided(*given, **options):
        return answers.pop() if answers else await publish(*given, **options)

    monkeypatch.setattr(leases, "publish", first_undecided)
    await world.serve(app_with(job))
    await queue(world)
    await until_run(world, "completed")
    assert (answers, len(ran)) == ([], 1)
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 1
    await check_invariants(world.database)


async def test_an_outcome_that_was_stored_without_a_reply_counts_once(world, monkeypatch):
    """Each reply of the broker is lost, but the dispatcher has the stored event."""

    async def job(ctx):
        return "done"

    async def mute(*given, **options):
        await publish(*given, **options)
        return NoAnswer("the reply was lost")

    monkeypatch.setattr(leases, "publish", mute)
    await world.serve(app_with(job))
    await queue(world)
    assert (await until_run(world, "completed"))["output"] == "done"
    rows = await world.rows("SELECT type, accepted FROM dispatcher.history WHERE run_id IS NULL")
    assert len(rows) == 3, "queued, claimed, settled"
    rows = await world.rows("SELECT type, accepted FROM dispatcher.history ORDER BY id")
    assert len(rows) == 6
    assert all(row["accepted"] for row in rows)
    await check_invariants(world.database)
