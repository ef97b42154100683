"""Activations, from a job's body to the dispatcher's events; the scheduler is a stub."""

import asyncio
import threading
from uuid import UUID, uuid4

import msgspec
import pytest
from headway import App
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker import activations
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.lifecycle import Activation, RunActivated
from headway_contract.settled import ActivationRequested, WorkSettled
from headway_contract.work import RetryPolicy
from headway_jetstream_kit.publish import publish
from support.activations import MANIFEST, Scheduler
from support.invariants import check_invariants
from support.world import until

pytestmark = pytest.mark.thorough


@pytest.fixture
async def scheduler(world) -> Scheduler:
    made = Scheduler(world)
    await made.listen()
    return made


async def run(world, scheduler, body, **fields) -> WorkSettled:
    """Run a body as a manifest's job, and wait until its work is settled."""
    app = App("test")
    app.job("job", group="ops")(body)
    await world.serve(app)
    await scheduler.queue(**fields)
    settled = await scheduler.until_settled()
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    await check_invariants(world.database)
    return settled


class Report(msgspec.Struct):
    day: str


MAIL = Activation(manifest="mail", input={"day": "monday"})


async def test_an_async_body_activates(world, scheduler):
    async def job(ctx):
        await ctx.activate("mail", Report("monday"))
        return "done"

    settled = await run(world, scheduler, job)
    assert (settled.outcome, settled.activations) == ("completed", [MAIL])
    [question] = scheduler.questions
    assert (question.manifest, question.activations) == ("parent", [MAIL])
    [requested] = await scheduler.events(ActivationRequested)
    assert (requested.manifest_id, requested.work, requested.round) == (MANIFEST, settled.work, 1)
    assert (requested.run, requested.activations) == (settled.run, [MAIL])
    stored = await world.value("SELECT activations FROM dispatcher.run")
    assert stored == [{"manifest": "mail", "key": "", "input": {"day": "monday"}}]


async def test_a_plain_function_activates_and_waits_until_it_is_stored(world, scheduler):
    stored = []

    def job(ctx):
        ctx.activate("mail", Report("monday"))
        stored.append(len(scheduler.questions))
        ctx.activate_many([("mail", 1), ("archive", None)])
        stored.append(len(scheduler.questions))

    settled = await run(world, scheduler, job)
    assert stored == [1, 2]
    assert settled.activations == [
        Activation(manifest="archive"),
        MAIL,
        Activation(manifest="mail", key="1", input=1),
    ]


async def test_a_thread_with_a_loop_of_its_own_awaits(world, scheduler):
    def job(ctx):
        async def inside():
            await ctx.activate("mail", Report("monday"))

        asyncio.run(inside())

    assert (await run(world, scheduler, job)).activations == [MAIL]


async def test_concurrent_activations_are_all_published_before_the_outcome(world, scheduler):
    async def job(ctx):
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(ctx.activate("mail", number))
        await asyncio.gather(*(ctx.activate("archive", number) for number in range(5)))

    settled = await run(world, scheduler, job)
    assert settled.outcome == "completed"
    keys = [(item.manifest, item.key) for item in settled.activations]
    assert keys == [(name, key) for name in ("archive", "mail") for key in ["", *"1234"]]
    requested = await scheduler.events(ActivationRequested)
    assert len(requested) == 10
    kinds = await world.rows("SELECT type FROM dispatcher.history ORDER BY id")
    assert [row["type"] for row in kinds[-2:]] == [
        "headway.run.completed.v1",
        "headway.work.settled.v1",
    ]


async def test_a_retried_attempt_repeats_its_keys(world, scheduler):
    async def job(ctx):
        await ctx.activate("mail", 1)
        await ctx.activate("mail", 2)
        await ctx.activate("archive", 3, key="fixed")
        if ctx.attempt == 1:
            raise ValueError("boom")

    settled = await run(world, scheduler, job)
    assert (settled.outcome, settled.runs) == ("completed", 2)
    assert settled.activations == [
        Activation(manifest="archive", key="fixed", input=3),
        Activation(manifest="mail", key="", input=1),
        Activation(manifest="mail", key="1", input=2),
    ]
    first, second = (
        [(item.manifest, item.key) for item in requests]
        for requests in _by_run(await scheduler.events(ActivationRequested))
    )
    assert first == second == [("mail", ""), ("mail", "1"), ("archive", "fixed")]


def _by_run(requests: list[ActivationRequested]) -> list[list[Activation]]:
    runs: dict[UUID, list[Activation]] = {}
    for request in requests:
        runs.setdefault(request.run, []).extend(request.activations)
    return list(runs.values())


async def test_activations_of_a_dead_lettered_run_are_published(world, scheduler):
    async def job(ctx):
        await ctx.activate("mail", Report("monday"))
        raise ValueError("boom")

    settled = await run(world, scheduler, job, retry=RetryPolicy(attempts=1))
    assert (settled.outcome, settled.activations) == ("dead_lettered", [MAIL])


async def test_a_refused_activation_raises_every_problem(world, scheduler):
    scheduler.problems = ["mail: no such dependent", "archive: input: expected `object`"]
    seen = []

    async def job(ctx):
        with pytest.raises(ActivationRefused) as refused:
            await ctx.activate_many([("mail", 1), ("archive", 2)])
        seen.append(str(refused.value))
        with pytest.raises(ActivationRefused, match="no such thing"):
            await ctx.activate("bad-request")
        scheduler.problems = []
        await ctx.activate("mail", Report("monday"))

    settled = await run(world, scheduler, job)
    assert seen == ["mail: no such dependent\narchive: input: expected `object`"]
    assert settled.activations == [MAIL], "the number of the refused activation was free again"


async def test_an_activation_that_is_not_awaited_is_published_and_its_error_raised(
    world, scheduler
):
    async def job(ctx):
        if ctx.attempt == 1:
            scheduler.problems = ["mail: no such dependent"]
        ctx.activate("mail", Report("monday"))
        if ctx.attempt == 2:
            scheduler.problems = []

    settled = await run(world, scheduler, job)
    assert settled.activations == [MAIL]
    failure = await world.value("SELECT failure FROM dispatcher.run WHERE state = 'failed'")
    assert (failure["kind"], failure["message"]) == (
        "ActivationRefused",
        "mail: no such dependent",
    )


class Unwritable:
    pass


async def test_inputs_are_checked_before_the_scheduler_is_asked(world, scheduler):
    problems = []

    async def job(ctx):
        with pytest.raises(ActivationRefused) as refused:
            await ctx.activate_many(
                [
                    ("large", "x" * (256 * 1024)),
                    ("nul", "a\x00b"),
                    ("unwritable", Unwritable()),
                    ("surrogate", "\ud800"),
                    ("good", 1),
                ]
            )
        problems.extend(str(refused.value).splitlines())
        with pytest.raises(ActivationRefused, match="activate fewer at once"):
            await ctx.activate_many([("mail", "x" * 250_000) for _ in range(5)])
        with pytest.raises(ActivationRefused, match="NUL"):
            await ctx.activate("mail", key="\x00")
        await ctx.activate_many([])

    assert (await run(world, scheduler, job)).outcome == "completed"
    assert scheduler.questions == []
    assert [problem.split(":")[0] for problem in problems] == [
        "large",
        "nul",
        "unwritable",
        "surrogate",
    ]
    assert "262146 bytes, more than 262144" in problems[0]


async def test_work_without_a_manifest_cannot_activate(world, scheduler):
    async def job(ctx):
        with pytest.raises(ActivationRefused, match="only the run of a manifest can activate"):
            await ctx.activate("mail")

    settled = await run(world, scheduler, job, manifest_id=None, manifest=None)
    assert settled.outcome == "completed"


async def test_an_activation_of_work_without_a_manifest_wakes_nothing(world, scheduler):
    """A worker can publish it without asking the scheduler."""

    async def job(ctx):
        lease = ctx._activator._lease
        woken = RunActivated(**lease.credentials, run=ctx.run, activations=[MAIL])
        await lease.publish(lease.event(woken))

    settled = await run(world, scheduler, job, manifest_id=None, manifest=None)
    assert settled.outcome == "completed"
    assert await scheduler.events(ActivationRequested) == []


async def test_without_a_scheduler_the_run_fails_and_is_tried_again(world, monkeypatch):
    monkeypatch.setattr(activations, "TRIES", 2)
    scheduler = Scheduler(world)

    async def job(ctx):
        if ctx.attempt == 2:
            await scheduler.listen()
        await ctx.activate("mail", Report("monday"))

    settled = await run(world, scheduler, job)
    assert (settled.outcome, settled.runs, settled.activations) == ("completed", 2, [MAIL])
    failure = await world.value("SELECT failure FROM dispatcher.run WHERE state = 'failed'")
    assert failure["kind"] == ActivationUnavailable.__name__
    assert "no scheduler answered 2 times whether parent may activate" in failure["message"]


async def test_a_body_whose_lease_was_lost_cannot_activate(world, scheduler):
    begun, go_on = asyncio.Event(), asyncio.Event()
    seen = []

    async def job(ctx):
        begun.set()
        await go_on.wait()
        try:
            await ctx.activate("mail")
        except LeaseLost as error:
            seen.append(error)
            raise

    app = App("test")
    app.job("job", group="ops")(job)
    worker = await world.serve(app)
    await scheduler.queue()
    await asyncio.wait_for(begun.wait(), 15)
    [runner] = worker._runners.values()
    runner.lease.lost = True
    go_on.set()

    async def forgotten():
        return not worker._runners

    await until(forgotten, within=10, what="the run is over at the worker")
    assert len(seen) == 1
    await world.until(
        "SELECT count(*) FROM dispatcher.history WHERE type = 'headway.run.started.v1'"
    )
    kinds = await world.rows("SELECT type FROM dispatcher.history WHERE type LIKE '%run.%'")
    assert {row["type"] for row in kinds} == {
        "headway.run.dispatched.v1",
        "headway.run.started.v1",
    }


async def test_a_thread_that_was_left_behind_activates_nothing_after_the_outcome(world, scheduler):
    go_on, seen = threading.Event(), []

    def job(ctx):
        go_on.wait(20)
        try:
            ctx.activate("mail")
        except LeaseLost as error:
            seen.append(str(error))

    settled = await run(
        world,
        scheduler,
        job,
        timeout_seconds=0.2,
        cancel_grace_seconds=0.1,
        retry=RetryPolicy(attempts=1),
    )
    assert settled.outcome == "dead_lettered"
    go_on.set()

    async def ended():
        return seen

    await until(ended, within=10, what="the thread knows that its run has ended")
    assert "has ended" in seen[0]
    assert scheduler.questions == []


async def test_activations_are_republished_after_the_stream_was_purged(world, scheduler):
    large = "x" * 250_000

    async def job(ctx):
        for number in range(5):
            await ctx.activate("mail", f"{number}{large}")
        await world.broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}")

    settled = await run(world, scheduler, job)
    assert settled.outcome == "completed"
    stored = await world.value("SELECT jsonb_array_length(activations) FROM dispatcher.run")
    assert stored == 5
    assert len(settled.activations) == 2, "as many as fit; each was also published on its own"
    assert len(await scheduler.events(ActivationRequested)) == 5


async def test_activations_after_the_end_or_with_a_wrong_token_are_refused(world, scheduler):
    async def job(ctx):
        await ctx.activate("mail", Report("monday"))

    settled = await run(world, scheduler, job)
    lease = (await world.rows("SELECT * FROM dispatcher.lease"))[0]
    for nonce, token in ((lease["nonce"], lease["token"]), (lease["nonce"], "guess")):
        late = RunActivated(
            lease=lease["id"],
            token=token,
            nonce=nonce,
            run=settled.run,
            activations=[Activation(manifest="archive")],
        )
        body = encode(event(late, id=uuid4(), source="worker/w", subject="x", time=utc_now()))
        await publish(world.broker, subjects.event(lease["id"], lease["claimed_by"]), body)
    await world.until("SELECT count(*) = 2 FROM dispatcher.history WHERE NOT accepted")
    refusals = await world.rows("SELECT refusal FROM dispatcher.history WHERE NOT accepted")
    assert {row["refusal"] for row in refusals} == {"run_ended", "wrong_token"}
    assert len(await scheduler.events(ActivationRequested)) == 1
