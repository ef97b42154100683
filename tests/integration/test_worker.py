"""The worker: limits, draining, and its behaviour without contact."""

import asyncio
import threading
from uuid import uuid4

import msgspec
import pytest
from headway import App, Fatal
from headway.worker import leases
from headway_clock import monotonic, utc_now
from headway_contract import decode, encode, event, subjects
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import LeaseClaimed, LeaseRenewed, RunCompleted, RunFailed
from headway_contract.work import RetryPolicy
from headway_contract.worker_protocol import CancelPush, Heartbeat, HeartbeatReply
from headway_dispatcher.gate import gate
from headway_jetstream_kit import Refused, Stored
from headway_jetstream_kit.publish import NoAnswer, publish
from headway_service_kit.service import Service
from support.invariants import check_invariants
from support.work_events import app_with, cancel, order_puller, queue, until_given_back, until_run
from support.world import until


async def test_a_job_never_runs_more_at_once_than_it_allows_here(world):
    app = App("test")
    running = {"narrow": 0, "wide": 0}
    most = dict(running)
    release = asyncio.Event()

    def body(name):
        async def job(ctx):
            running[name] += 1
            most[name] = max(most[name], running[name])
            await release.wait()
            running[name] -= 1

        return job

    app.job("narrow", group="ops", worker_concurrency=2)(body("narrow"))
    app.job("wide", group="ops")(body("wide"))
    await world.serve(app, worker_slots=6)
    for _ in range(6):
        await queue(world, job="narrow")
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.metadata"
        " WHERE job = 'narrow' AND state = 'in_progress'"
    )
    # The gate orders no more runs than the worker takes, and one spare.
    assert await world.value("SELECT count(*) FROM dispatcher.metadata") == 3
    for _ in range(4):
        await queue(world, job="wide")
    await world.until(
        "SELECT count(*) FROM dispatcher.metadata WHERE job = 'wide' AND state = 'in_progress'"
    )
    release.set()
    await world.until("SELECT count(*) = 10 FROM dispatcher.metadata WHERE state = 'completed'")
    assert most["narrow"] == 2
    await check_invariants(world.database)


@pytest.mark.parametrize("ending", ["deaf", "polite", "raising"])
async def test_a_plain_function_is_handed_back_at_the_drain_s_deadline(world, ending):
    begun, release = threading.Event(), threading.Event()

    def job(ctx):
        if begun.is_set():
            return "second"
        begun.set()
        while not (release.is_set() if ending == "deaf" else ctx.cancelled):
            release.wait(0.01)
        if ending == "raising":
            raise RuntimeError("interrupted")
        return "half done"

    app = app_with(job)
    await world.serve(app, drain_seconds=0.1)
    await queue(world, cancel_grace_seconds=30)
    await until_run(world, "in_progress")
    began = monotonic()
    await world.stop_workers()
    assert monotonic() - began < 10
    release.set()
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "worker_stopped"
    await world.worker(app)
    row = await until_run(world, "completed")
    assert (row["output"], row["attempt"]) == ("second", 1), (
        "not counted, so it is the first attempt again"
    )
    await check_invariants(world.database)


@pytest.mark.parametrize("stop_reason", ["cancelled", "timed_out"])
async def test_a_run_that_is_already_stopping_has_no_longer_than_the_drain(world, stop_reason):
    release, heard = threading.Event(), threading.Event()

    def job(ctx):
        while not release.is_set():
            release.wait(0.01)
            if ctx.cancelled:
                heard.set()

    await world.dispatcher(orphan_timeout_seconds=60)
    await world.worker(app_with(job), drain_seconds=0.1)
    timeout = 0.2 if stop_reason == "timed_out" else 60
    work = await queue(world, cancel_grace_seconds=60, timeout_seconds=timeout)
    await until_run(world, "in_progress")
    if stop_reason == "cancelled":
        await cancel(world, work)
    await asyncio.to_thread(heard.wait, 20)
    began = monotonic()
    await world.stop_workers()
    assert monotonic() - began < 10
    release.set()
    if stop_reason == "cancelled":
        await until_run(world, "cancelled")
        assert await world.value("SELECT outcome FROM dispatcher.work_queue") == "cancelled"
    else:
        assert (await until_run(world, "failed"))["failure"]["kind"] == "timed_out"
    await check_invariants(world.database)


@pytest.mark.parametrize("policy", ["stop", "continue"])
async def test_when_contact_is_lost_the_job_decides(world, policy):
    release, ended = asyncio.Event(), []

    async def job(ctx):
        try:
            await release.wait()
            ended.append("completed")
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    await world.dispatcher(orphan_timeout_seconds=1.0)
    worker = await world.worker(app_with(job))
    await queue(world, on_lost_contact=policy, retry=RetryPolicy(attempts=1))
    await until_run(world, "in_progress")
    for service in world.services:
        await service.stop()
    world.services.clear()
    silent = worker.heartbeats.silence

    async def long_enough():
        return silent() > 1.5

    await until(long_enough, within=20, what="no reply for the orphan timeout")
    if policy == "stop":

        async def stopped():
            return ended == ["stopped"]

        await until(stopped, within=10, what="the body was stopped")
    assert ended == (["stopped"] if policy == "stop" else [])
    release.set()
    await world.dispatcher(orphan_timeout_seconds=60)
    if policy == "stop":
        row = await until_run(world, "failed")
        assert row["failure"]["kind"] == "lost_contact"
        await until_run(world, "completed")
        assert await world.value("SELECT attempts FROM dispatcher.work_queue") == 1
    else:
        await until_run(world, "completed")
        assert await world.value("SELECT count(*) FROM dispatcher.metadata") == 1
    await check_invariants(world.database)


async def test_a_worker_without_contact_claims_nothing_that_it_would_have_to_stop(world):
    """Otherwise it would begin one body after the other and stop each at the next heartbeat."""
    begun, mended = [], asyncio.Event()

    async def job(ctx):
        begun.append(ctx.work)
        await mended.wait()

    await world.dispatcher(orphan_timeout_seconds=1.0)
    await world.worker(app_with(job), worker_slots=1)
    for _ in range(2):
        await queue(world, retry=RetryPolicy(attempts=1))
    await world.until("SELECT count(*) = 2 FROM dispatcher.metadata")
    await until_run(world, "in_progress")
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    [dispatcher] = world.services
    await dispatcher.stop()
    world.services.clear()
    await until_given_back(world, "job")
    assert len(begun) == 1, "the other order is still available to a worker with contact"
    mended.set()
    await world.dispatcher(orphan_timeout_seconds=60)
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.work_queue WHERE outcome = 'completed' AND attempts = 1"
    )
    assert len(begun) == 3
    await check_invariants(world.database)


@pytest.mark.parametrize("way", ["push", "heartbeat"])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_cancel_is_heard_by_push_or_else_by_heartbeat(world, way, kind, monkeypatch):
    """Test each way alone: no other message reaches the worker before the test times out."""
    if way == "push":
        monkeypatch.setitem(Service.keep.__kwdefaults__, "poll", 3600.0)
    heard = threading.Event()

    def plain(ctx):
        while not ctx.cancelled:
            heard.wait(0.005)
        heard.set()

    async def waits(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            heard.set()

    # With push, no heartbeat and no pass is due for a minute; with heartbeat, no push arrives.
    seconds = 60.0 if way == "push" else 0.3
    await world.dispatcher(heartbeat_seconds=seconds, orphan_timeout_seconds=300)
    app = app_with(plain if kind == "plain" else waits)
    worker = await world.worker(app, heartbeat_seconds=seconds)
    if way == "heartbeat":
        obey = worker.heartbeats.obey
        # A heartbeat reply is a CancelPush too, so keep the replies instead of dropping pushes.
        worker.heartbeats.obey = lambda got: obey(got) if isinstance(got, HeartbeatReply) else None
    work = await queue(world, retry=RetryPolicy(attempts=3))
    await until_run(world, "in_progress")
    await cancel(world, work)
    row = await until_run(world, "cancelled", within=10)
    assert heard.is_set()
    assert row["cancel_reason"] == "asked"
    await world.until("SELECT outcome = 'cancelled' FROM dispatcher.work_queue")
    assert await world.value("SELECT count(*) FROM dispatcher.metadata") == 1, "never tried again"
    await check_invariants(world.database)


class Special(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("policy", "error", "runs", "reason"),
    [
        ({"retry_on": ("OSError",)}, Special("base class"), 2, "attempts_exhausted"),
        ({"retry_on": ("OSError",)}, ValueError("other"), 1, "kind_not_retried"),
        ({"abort_on": ("ConnectionError",)}, Special("base class"), 1, "kind_not_retried"),
        ({"abort_on": ("Special",)}, OSError("more general"), 2, "attempts_exhausted"),
        ({"retry_on": ("Fatal",)}, Fatal("no use"), 1, "not_retryable"),
    ],
)
async def test_kinds_of_failure_decide_whether_it_is_tried_again(
    world, policy, error, runs, reason
):
    async def job(ctx):
        raise error

    await world.serve(app_with(job))
    given = RetryPolicy(attempts=2, interval_seconds=0.05, **policy)
    await queue(world, retry=given)
    await world.until("SELECT count(*) FROM dispatcher.dead_letter")
    assert await world.value("SELECT reason FROM dispatcher.dead_letter") == reason
    assert await world.value("SELECT count(*) FROM dispatcher.metadata") == runs
    await check_invariants(world.database)


async def test_the_next_attempt_waits_in_the_queue_where_it_can_be_seen(world):
    async def job(ctx):
        raise ValueError("boom")

    await world.serve(app_with(job))
    await queue(world, retry=RetryPolicy(attempts=2, interval_seconds=600, jitter=0))
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'waiting'")
    row = (await world.rows("SELECT * FROM dispatcher.work_queue"))[0]
    assert (row["wait_reason"], row["attempts"]) == ("retry", 1)
    assert 590 < (row["not_before"] - utc_now()).total_seconds() <= 600


async def test_a_long_lease_is_renewed_so_that_its_last_message_stays(world, monkeypatch):
    monkeypatch.setattr(gate, "renew_seconds", lambda _settings: 0.2)
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
    monkeypatch.setattr(gate, "renew_seconds", lambda _settings: 0.2)
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
    monkeypatch.setattr(gate, "renew_seconds", lambda _settings: 0.2)
    stopped = asyncio.Event()

    async def job(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def lost(self):
        self.lost = True
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
        await beat(world)
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


async def beat(world, worker: str = "stranger", nonce: str = "n") -> None:
    heartbeat = Heartbeat(worker=worker, nonce=nonce, jobs=["job"], slots=5)
    await world.broker.client.request(subjects.HEARTBEAT, msgspec.json.encode(heartbeat), timeout=5)


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
    assert await world.value("SELECT state FROM dispatcher.metadata") == "in_progress"


@pytest.mark.parametrize(
    "answer",
    [
        Refused(400, subjects.UNDECIDED_SEQUENCE, "undecided in a replicated stream"),
        Refused(503, 0, "no leader"),
        NoAnswer("the message was lost"),
        Refused(400, subjects.WRONG_SEQUENCE, "so it says, and nothing is stored"),
    ],
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
    assert await world.value("SELECT count(*) FROM dispatcher.metadata") == 1
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
