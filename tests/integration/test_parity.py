"""Claims of docs/parity.md that no other test shows: defaults and transferred fields."""

import asyncio
import socket

import pytest
from headway import App, every, retry
from headway.worker.runtime import WorkerSettings
from headway_clock import utc_now
from headway_contract.dead_letters import LetterFilter
from headway_contract.work import RetryPolicy, WorkQueued
from headway_dispatcher.settings import DispatcherSettings
from headway_scheduler.settings import SchedulerSettings
from support.cadences import when_made_due
from support.gates import Gates, SetClock, work
from support.timeline import Timeline
from support.work_events import app_with, queue, until_run


class TestScheduling:
    async def test_a_scheduler_without_settings_prunes(self, world):
        await world.dispatcher()
        first = App("test")
        first.job("job")(lambda ctx: None)
        first.schedule("goes", job="job", when=every(hours=1))
        await world.declare(first)
        await world.scheduler(App("test"))
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")
        assert SchedulerSettings(database_url="", nats_url="").prune == "delete"

    async def test_a_batch_prunes_by_membership_and_not_by_prefix(self, database):
        def app(items: list[str], *, beside: bool) -> App:
            made = App("test")
            made.job("job")(lambda ctx: None)
            batch = [(item, None) for item in items]
            made.schedule_many("sync", job="job", items=batch, when=every(hours=1), prune=True)
            if beside:
                made.schedule("sync-c", job="job", when=every(hours=1))
            return made

        timeline = Timeline(database)
        await timeline.declare(app(["a", "b"], beside=True))
        applied = await timeline.declare(app(["a"], beside=False), prune="keep")
        assert applied.pruned == ["sync-b"]
        assert await timeline.manifest("sync-c") is not None

    async def test_work_carries_what_its_manifest_states(self, database):
        timeline, app = Timeline(database), App("test")

        @app.job("report", group="ops", timeout=90)
        def report(ctx, given: dict): ...

        policy = RetryPolicy(attempts=5, interval_seconds=7)
        app.schedule(
            "nightly",
            job=report,
            when=every(hours=1),
            input={"day": 3},
            retry=retry(attempts=5, interval=7),
        )
        await timeline.declare(app)
        due_at = timeline.at(hours=1)
        await timeline.tick()
        [queued] = await timeline.outbox(WorkQueued)
        manifest = await timeline.manifest("nightly")
        assert (queued.job, queued.input, queued.group) == ("report", {"day": 3}, "ops")
        assert (queued.manifest_id, queued.manifest) == (manifest["id"], "nightly")
        assert (queued.due_at, queued.slot, queued.round) == (due_at, 0, 1)
        assert queued.cause == f"due:{due_at:%Y-%m-%dT%H:%M:%SZ}"
        assert (queued.terms.retry, queued.terms.timeout_seconds) == (policy, 90)

    async def test_the_tick_sleeps_until_something_is_due(self, database):
        timeline, app = Timeline(database), App("test")
        app.job("job")(lambda ctx: None)
        app.schedule("m", job="job", when=every(hours=1))
        await timeline.declare(app)
        assert (await timeline.tick()).next_at == timeline.at(hours=1)

    async def test_the_tick_also_runs_every_five_seconds(self, world):
        app = App("test")
        app.job("job")(lambda ctx: None)
        app.schedule("m", job="job", when=when_made_due())
        await world.scheduler(app)
        await world.until("SELECT ticked_at IS NOT NULL FROM scheduler.leader")
        await world.make_due()  # without waking the tick
        await world.until("SELECT count(*) = 1 FROM scheduler.work", within=10)


class TestWorkers:
    async def test_a_worker_that_stops_waits_for_its_runs(self, world):
        begun, release = asyncio.Event(), asyncio.Event()

        async def job(ctx):
            begun.set()
            await release.wait()
            return "done"

        worker = await world.serve(app_with(job))
        await queue(world)
        await begun.wait()
        stopping = asyncio.create_task(world.stop_workers())
        await world.until("SELECT draining FROM dispatcher.worker")
        assert worker.draining
        release.set()
        await stopping
        assert (await until_run(world, "completed"))["output"] == "done"
        assert WorkerSettings().drain_seconds == 30

    async def test_a_worker_takes_no_more_at_once_than_it_has_slots(self, world):
        running, most, release = 0, 0, asyncio.Event()

        async def job(ctx):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1

        await world.serve(app_with(job), worker_slots=2)
        for _ in range(6):
            await queue(world)
        await world.until("SELECT count(*) = 2 FROM dispatcher.run WHERE state = 'in_progress'")
        release.set()
        await world.until("SELECT count(*) = 6 FROM dispatcher.run WHERE state = 'completed'")
        assert most == 2

    async def test_every_attempt_is_a_record_of_its_own(self, world):
        attempts = []

        async def job(ctx):
            attempts.append(ctx.attempt)
            if len(attempts) == 1:
                raise ConnectionError("the line was cut")

        await world.serve(app_with(job), worker_name="w1")
        await queue(world, retry=RetryPolicy(attempts=2, interval_seconds=0))
        await until_run(world, "completed")
        first, second = await world.rows("SELECT * FROM dispatcher.run ORDER BY attempt")
        assert first["run_id"] != second["run_id"]
        assert [(row["attempt"], row["state"]) for row in (first, second)] == [
            (1, "failed"),
            (2, "completed"),
        ]
        assert (first["failure"]["kind"], first["failure"]["message"]) == (
            "ConnectionError",
            "the line was cut",
        )
        for row in (first, second):
            assert (row["worker"], row["host"]) == ("w1", socket.gethostname())
            assert row["created_at"] <= row["started_at"] <= row["finished_at"]


class TestGate:
    @pytest.fixture
    async def gates(self, database) -> Gates:
        made = Gates(database, clock=SetClock(), max_active=3)
        await made.worker("etl")
        return made

    async def test_pending_and_running_runs_count_against_the_cap_of_all(self, gates):
        works = await gates.queue(*(work() for _ in range(5)))
        assert await gates.drain() == 3
        active = await gates.active()
        await gates.begin(active[0])
        assert await gates.drain() == 0, "one runs and two are pending"
        await gates.end(active[1])
        assert await gates.drain() == 1, "a pending one has ended"
        await gates.end(active[0])
        assert await gates.drain() == 1, "the running one has ended"
        assert len(set(await gates.active()) & set(works)) == 3
        assert DispatcherSettings(database_url="", nats_url="").max_active == 100

    async def test_a_pass_admits_a_batch_and_commits_it_with_its_orders(self, database):
        gates = Gates(database, clock=SetClock(), max_active=1000, gate_batch=200)
        await gates.worker("etl")
        await gates.queue(*(work() for _ in range(250)))
        assert (await gates.run()).admitted == 200
        committed = await gates.value("SELECT count(DISTINCT xmin::text) FROM dispatcher.lease")
        assert (committed, len(await gates.active())) == (1, 200)
        ordered = {run.work for order in await gates.orders() for run in order.runs}
        assert ordered == set(await gates.active()), "no order is published before the commit"
        assert (await gates.run()).admitted == 50


class TestLetters:
    async def test_a_retried_round_has_all_of_its_attempts(self, ops):
        twice = RetryPolicy(attempts=2, interval_seconds=0)
        work_id, letter = await ops.letter(retry=twice)
        await ops.client.retry(letter)
        second = await ops.world.until(
            "SELECT id FROM dispatcher.dead_letter WHERE work_id = $1 AND round = 2", work_id
        )
        runs = (await ops.client.dead_letter(second)).runs
        assert [run.attempt for run in runs] == [1, 2]

    async def test_letters_are_chosen_by_id_or_by_what_they_are(self, ops):
        letters = [(await ops.letter())[1] for _ in range(3)]
        between = utc_now()
        letters += [(await ops.letter(group="other"))[1] for _ in range(2)]
        resolved = await ops.client.acknowledge(*letters[:2])
        assert [resolution.dead_letter for resolution in resolved] == letters[:2], (
            "by a list of ids"
        )

        async def left(**chosen) -> set:
            results = await ops.client.acknowledge_all(LetterFilter(**chosen))
            assert {resolution.result for resolution in results} <= {"acknowledged"}
            return {resolution.dead_letter for resolution in results}

        assert await left(group="nobody") == set()
        assert await left(created_before=between) == {letters[2]}
        print_of = (await ops.client.dead_letter(letters[3])).status.fingerprint
        assert await left(fingerprint="000000000000") == set()
        assert await left(group="other", fingerprint=print_of) == set(letters[3:])
        assert await left() == set()
