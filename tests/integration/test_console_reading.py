"""The console's lists, compared with the actual runs."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from headway import App
from headway_clock import monotonic, utc_now
from headway_console.reading.applications import page_of_jobs
from headway_console.reading.audit import AuditFilter, page_of_audit
from headway_console.reading.dead_letters import page_of_failures, page_of_letters, read_letter
from headway_console.reading.events import (
    EventFilter,
    new_numbers,
    page_of_events,
    read_events,
    read_position,
)
from headway_console.reading.groups import page_of_groups
from headway_console.reading.manifests import (
    ManifestFilter,
    find_id,
    list_labels,
    page_of_manifests,
    read_manifest,
)
from headway_console.reading.occurrences import latest_figures, page_of_occurrences, read_span
from headway_console.reading.runs import RunFilter, page_of_runs, read_log, read_run
from headway_console.reading.system import page_of_workers, read_overview, read_system
from headway_console.reading.works import WorkFilter, page_of_works, read_work
from headway_contract.dead_letters import LetterFilter
from headway_contract.work import RetryPolicy
from headway_errors import Conflict, NotFound
from support.cadences import when_made_due
from support.invariants import check_invariants


def demo_app(slow_may_end: asyncio.Event) -> App:
    """Return an app whose jobs succeed, fail, retry and wait."""
    app = App("test")
    tried: list[int] = []

    @app.job("fine", group="ops", title="A fine job")
    async def fine(ctx, given: dict):
        ctx.log.info("looked at %s", given["order"])
        ctx.log.warning("went well")
        return {"shipped": given["order"]}

    @app.job("flaky", group="ops")
    async def flaky(ctx):
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError("the line was cut")

    @app.job("bad", group="mail")
    async def bad(ctx):
        raise ValueError("there is no address 100% sure")

    @app.job("slow", group="mail")
    async def slow(ctx):
        ctx.progress(40.0, "two of five")
        await slow_may_end.wait()

    app.schedule("fine-1", job="fine", when=when_made_due(), input={"order": "A_7"})
    app.schedule("fine-2", job="fine", when=when_made_due(), input={"order": "B-8"})
    app.manifest("fine-1").then(
        "after-fine", job="flaky", retry=RetryPolicy(attempts=2, interval_seconds=0.05)
    )
    app.schedule(
        "bad-1",
        job="bad",
        when=when_made_due(),
        retry=RetryPolicy(attempts=1),
        labels={"team": "mail"},
    )
    app.schedule("slow-1", job="slow", when=when_made_due(), retry=RetryPolicy(attempts=1))
    return app


@pytest.fixture
async def settled(world):
    """A system with completed, retried, dead-lettered, skipped and running work."""
    may_end = asyncio.Event()
    app = demo_app(may_end)
    await world.serve(app, worker_name="w1", worker_slots=6)
    await world.declare(app)
    await world.make_due("fine-1", "fine-2", "bad-1", "slow-1")
    await world.scheduler(app)
    async with world.client() as client:
        await world.until(
            "SELECT progress IS NOT NULL FROM dispatcher.run"
            " JOIN dispatcher.run_report USING (run_id) WHERE job = 'slow'"
        )
        with pytest.raises(Conflict, match="was under way"):
            await client.trigger("slow-1")
        yield client, world
        may_end.set()


class TestLists:
    async def test_runs_are_listed_and_filtered(self, settled, reader):
        client, world = settled
        await world.until("SELECT count(*) = 5 FROM dispatcher.run WHERE finished_at NOTNULL")

        async def found(**filters) -> set[tuple[str | None, str, int]]:
            page = await page_of_runs(reader, RunFilter(**filters))
            assert page.next is None
            return {(run.manifest, run.state, run.attempt) for run in page.items}

        fine = {("fine-1", "completed", 1), ("fine-2", "completed", 1)}
        again = {("after-fine", "failed", 1), ("after-fine", "completed", 2)}
        live, bad = {("slow-1", "in_progress", 1)}, {("bad-1", "failed", 1)}
        assert await found() == fine | again | live | bad
        assert await found(job="fine") == fine
        assert await found(group="mail") == live | bad
        assert await found(state="failed") == bad | {("after-fine", "failed", 1)}
        assert await found(state="in_progress") == live
        assert await found(state="completed", group="mail") == set()
        assert await found(worker="w1") == fine | again | live | bad
        assert await found(worker="w2") == set()
        assert await found(text="LINE was") == {("after-fine", "failed", 1)}
        assert await found(text="0% s") == bad
        assert await found(text="a_7") == {("fine-1", "completed", 1)}
        assert await found(text="a_7", text_in="error") == set()
        assert await found(text="valueerror", text_in="input") == set()
        assert await found(before=utc_now() - timedelta(hours=1)) == set()
        [slow] = (await page_of_runs(reader, RunFilter(job="slow"))).items
        assert (slow.worker, slow.percent, slow.message) == ("w1", 40.0, "two of five")
        for kind in ("fine-1", "bad-1"):
            status = (await client.manifest(kind)).status
            [run] = (await page_of_runs(reader, RunFilter(manifest_id=status.id))).items
            assert run.manifest == kind
            assert run.state == ("completed" if kind == "fine-1" else "failed")

    async def test_a_run_is_read_in_full(self, settled, reader):
        client, world = settled
        await world.until(
            "SELECT count(*) = 2 FROM dispatcher.run WHERE job = 'flaky'"
            " AND finished_at IS NOT NULL"
        )
        await world.until("SELECT count(*) = 4 FROM dispatcher.run_log")
        again = (await page_of_runs(reader, RunFilter(job="flaky"))).items
        run = await read_run(reader, again[1].run)
        assert (run.failure.kind, run.failure.message) == ("ConnectionError", "the line was cut")
        assert "raise ConnectionError" in run.failure.stack
        assert [attempt.state for attempt in run.attempts] == ["failed", "completed"]
        types = [event.type.split(".", 1)[1] for event in run.timeline]
        assert types[0] == "work.queued.v1"
        assert types.count("run.dispatched.v1") == 2
        assert types.index("run.failed.v1") < types.index("work.waiting.v1")
        assert types[-1] == "work.settled.v1" or "work.settled.v1" not in types
        assert not any("token" in event.data for event in run.timeline)
        fine = (await page_of_runs(reader, RunFilter(job="fine", text="A_7"))).items[0]
        done = await read_run(reader, fine.run)
        assert (done.input, done.output) == ({"order": "A_7"}, {"shipped": "A_7"})
        assert [(line.level, line.message) for line in done.log] == [
            ("info", "looked at A_7"),
            ("warning", "went well"),
        ]
        assert [line.number for line in await read_log(reader, fine.run, after=1)] == [2]
        assert done.trace_id == (await client.run(fine.run)).trace_id
        with pytest.raises(NotFound, match="there is no run"):
            await read_run(reader, uuid4())

    async def test_work_is_listed_by_state_and_reason(self, settled, reader):
        client, world = settled
        # Wait until the scheduler knows that all but the slow work has ended. Otherwise a trigger
        # brings forward work in progress, and the disabled group holds a retry.
        await world.until(
            "SELECT count(*) = 4 FROM scheduler.manifest WHERE last_outcome IS NOT NULL"
        )
        await client.change_group("ops", enabled=False)
        await client.trigger("fine-2")
        await world.until("SELECT reason = 'group_disabled' FROM dispatcher.waiting")
        rows = (await page_of_works(reader, WorkFilter())).items
        assert {(work.manifest, work.state, work.wait_reason) for work in rows} == {
            ("slow-1", "dispatched", None),
            ("fine-2", "queued", "group_disabled"),
        }
        [held] = (await page_of_works(reader, WorkFilter(reason="group_disabled"))).items
        assert (await page_of_works(reader, WorkFilter(job="slow", state="queued"))).items == []
        assert (await page_of_works(reader, WorkFilter(text="b-8"))).items == [held]
        assert (await page_of_works(reader, WorkFilter(text="A_7"))).items == []
        settled = await page_of_works(reader, WorkFilter(state="settled", text="a_7"))
        assert [work.manifest for work in settled.items] == ["fine-1"]
        assert (await read_work(reader, held.work)).input == {"order": "B-8"}
        [dead] = (
            await page_of_works(reader, WorkFilter(state="settled", reason="dead_lettered"))
        ).items
        full = await read_work(reader, dead.run)
        assert (full.status.work, len(full.runs), len(full.dead_letters)) == (dead.work, 1, 1)
        groups = {group.name: group for group in (await page_of_groups(reader)).items}
        assert groups["ops"].waiting == {"group_disabled": 1}
        assert (groups["ops"].enabled, groups["ops"].touched) == (False, ["enabled"])
        assert (groups["mail"].active, groups["mail"].dead_letters) == (1, 1)
        assert (groups["mail"].manifests, groups["mail"].blocked) == (2, 1)
        assert [group.name for group in (await page_of_groups(reader, name="ops")).items] == ["ops"]

    async def test_dead_letters_are_grouped_by_failure(self, settled, reader):
        client, world = settled
        await world.until("SELECT count(*) = 1 FROM dispatcher.dead_letter")
        [failure] = (await page_of_failures(reader)).items
        assert (failure.letters, failure.jobs, failure.groups) == (1, ["bad"], ["mail"])
        assert (failure.failure_kind, failure.sample_manifest) == ("ValueError", "bad-1")
        filters = LetterFilter(fingerprint=failure.fingerprint)
        [letter] = (await page_of_letters(reader, filters)).items
        assert letter == (await client.dead_letters())[0]
        assert await read_letter(reader, letter.dead_letter) == await client.dead_letter(
            letter.dead_letter
        )
        assert (await page_of_failures(reader, group="ops")).items == []
        await client.acknowledge(letter.dead_letter, note="seen")
        assert (await page_of_failures(reader)).items == []
        assert (await page_of_failures(reader, state="acknowledged")).items[0].letters == 1
        entries = (await page_of_audit(reader, AuditFilter(target=str(letter.dead_letter)))).items
        assert [entry.action for entry in entries] == ["dead_letter.acknowledged"]

    async def test_manifests_and_their_family(self, settled, reader):
        client, world = settled
        await world.until(
            "SELECT last_outcome = 'dead_lettered' FROM scheduler.manifest"
            " WHERE external_id = 'bad-1'"
        )
        await client.disable("fine-2")

        async def found(**filters) -> list[str]:
            page = await page_of_manifests(reader, ManifestFilter(**filters))
            return [manifest.external_id for manifest in page.items]

        assert await found() == ["after-fine", "bad-1", "fine-1", "fine-2", "slow-1"]
        assert await found(text="FINE") == ["after-fine", "fine-1", "fine-2"]
        assert await found(text="a fine j") == ["fine-1", "fine-2"]
        assert await found(group="mail") == ["bad-1", "slow-1"]
        assert await found(state="blocked") == ["bad-1"]
        assert await found(label=("team=mail",)) == ["bad-1"]
        assert await found(label=("team=mail", "tier=1")) == []
        [label] = await list_labels(reader)
        assert tuple(label) == ("team", "mail", 1)
        assert await found(state="disabled") == ["fine-2"]
        await client.pause("fine-1", reason="new disks")
        assert await found(state="paused") == ["fine-1"]
        [held] = (await page_of_manifests(reader, ManifestFilter(state="paused"))).items
        assert (held.held_by, [p.reason for p in held.pauses]) == ("paused", ["new disks"])
        assert "slow-1" in await found(state="outstanding")
        assert await found(job="slow", owner="test") == ["slow-1"]
        assert await found(owner="nobody") == []
        rows = {
            manifest.external_id: manifest
            for manifest in (await page_of_manifests(reader, ManifestFilter())).items
        }
        assert (rows["bad-1"].held_by, rows["bad-1"].last_run.failure) == (
            "blocked_by_dead_letter",
            "there is no address 100% sure",
        )
        assert rows["fine-2"].held_by == "manifest_disabled"
        assert rows["slow-1"].last_run.state == "in_progress"
        full = await read_manifest(reader, "after-fine")
        status = (await client.manifest("after-fine")).status
        assert full.status.depends_on == status.depends_on == "fine-1"
        assert [node.external_id for node in full.family] == ["fine-1", "after-fine"]
        [parent, child] = full.family
        assert (child.id, child.depends_on) == (status.id, parent.id)
        sources = {
            setting.name: setting.source
            for setting in (await read_manifest(reader, "fine-2")).settings
        }
        assert (sources["enabled"], sources["timing"], sources["retry"]) == (
            "operator",
            "code",
            "code",
        )
        with pytest.raises(NotFound, match="nobody"):
            await read_manifest(reader, "nobody")
        jobs = (await page_of_jobs(reader, heard_since=utc_now() - timedelta(minutes=1))).items
        assert [(job.name, job.manifests, job.workers) for job in jobs] == [
            ("bad", 1, 1),
            ("fine", 2, 1),
            ("flaky", 1, 1),
            ("slow", 1, 1),
        ]

    async def test_the_ledger_for_a_calendar(self, settled, reader):
        client, world = settled
        slow = (await client.manifest("slow-1")).status.id
        now = utc_now()
        hour = timedelta(hours=1)
        past, more = await read_span(reader, slow, since=now - hour, until=now + hour)
        states = [
            (occurrence.cause.partition(":")[0], occurrence.state, occurrence.reason)
            for occurrence in past
        ]
        assert states == [("due", "under_way", None), ("trigger", "skipped", "still_outstanding")]
        assert not more
        later = await read_span(reader, slow, since=now + hour, until=now + 2 * hour)
        assert later == ([], False)
        [work] = (await page_of_works(reader, WorkFilter(job="slow"))).items
        await client.cancel(work.work)
        await world.until("SELECT count(*) FROM scheduler.occurrence WHERE outcome = 'cancelled'")
        first = await page_of_occurrences(reader, slow, limit=1)
        then = await page_of_occurrences(reader, slow, cursor=first.next, limit=1)
        assert [occurrence.state for occurrence in (*first.items, *then.items)] == [
            "skipped",
            "cancelled",
        ]
        assert then.next is None
        [cancelled] = (await page_of_runs(reader, RunFilter(state="cancelled"))).items
        assert (cancelled.run, cancelled.manifest) == (then.items[0].run, "slow-1")

    async def test_the_audit_shows_actor_before_and_after(self, settled, reader):
        client, _ = settled
        await client.change("fine-1", attempts=7)
        await client.change_group("ops", max_active=3)
        [entry] = (await page_of_audit(reader, AuditFilter(target="fine-1", people=True))).items
        assert entry.action == "manifest.changed"
        assert entry.before["retry"]["attempts"] == 3
        assert entry.after["retry"]["attempts"] == 7
        [group] = (await page_of_audit(reader, AuditFilter(action=("group.*",), people=True))).items
        assert (group.target, group.before["max_active"], group.after["max_active"]) == (
            "ops",
            None,
            3,
        )
        assert (await page_of_audit(reader, AuditFilter(actor="nobody"))).items == []
        mine = (await page_of_audit(reader, AuditFilter(actor=entry.actor))).items
        assert {entry.action for entry in mine} == {
            "manifest.changed",
            "group.changed",
            "manifest.triggered",
        }
        assert len((await page_of_audit(reader, AuditFilter())).items) > len(mine)

    async def test_the_overview_and_the_system(self, settled, reader):
        _, world = settled
        await world.until("SELECT count(*) = 5 FROM dispatcher.run WHERE finished_at NOTNULL")
        await world.until(
            "SELECT (SELECT count(*) FROM scheduler.work) = 1"
            " AND NOT EXISTS (SELECT FROM scheduler.outbox)"
            " AND NOT EXISTS (SELECT FROM dispatcher.outbox)"
        )
        now = utc_now()
        since = now - timedelta(minutes=1)
        seen = await read_overview(reader, now=now, heard_since=since)
        assert (seen.lately.completed, seen.lately.failed) == (3, 2)
        assert sum(slot.completed for slot in seen.day) == 3
        assert len(seen.day) == 48
        assert {(job.job, job.failed) for job in seen.failing} == {("bad", 1), ("flaky", 1)}
        assert (seen.counts.manifests, seen.counts.blocked, seen.counts.workers) == (5, 1, 1)
        assert seen.counts.slots == 6
        assert {manifest.external_id for manifest in seen.coming} >= {"fine-1", "fine-2"}
        assert [failure.letters for failure in seen.failures] == [1]
        assert seen.health.leader.ticked_at >= seen.health.leader.since
        assert {backlog.waiting for backlog in seen.health.backlogs} == {0}
        known = await read_system(reader, now=now)
        assert known.connected["headway-dispatcher"] >= 1
        assert known.versions["postgresql"]
        assert "dispatcher.history" in {table["name"] for table in known.tables}
        [worker] = (await page_of_workers(reader, heard_since=since)).items
        assert (worker.worker, worker.sdk, len(worker.runs)) == ("w1", "headway-python", 1)
        figures = await latest_figures(reader, await find_id(reader, "after-fine"))
        assert [figure.attempt for figure in figures] == [2, 1]
        assert all(figure.took_seconds >= 0 for figure in figures)

    async def test_events_are_followed_and_none_is_missed(self, settled, reader):
        client, world = settled
        await world.until("SELECT count(*) = 5 FROM dispatcher.run WHERE finished_at NOTNULL")
        numbers = await read_position(reader, now=utc_now())
        filters = EventFilter(type=("run.*", "work.settled"), job="fine")
        work = (await client.trigger("fine-2")).work
        await world.until("SELECT state = 'settled' FROM dispatcher.work_queue WHERE id = $1", work)
        events = []
        while not any(event.type == "headway.work.settled.v1" for event in events):
            now = utc_now()
            new = await new_numbers(reader, numbers, now=now, elapsed=monotonic())
            events += await read_events(reader, new, filters, now=now)
        assert {event.work for event in events} == {work}
        assert {event.type for event in events} >= {"headway.run.completed.v1"}
        listed = await page_of_events(reader, EventFilter(work=work, type=filters.type))
        assert [event.number for event in listed.items] == [
            event.number for event in reversed(events)
        ]
        await check_invariants(world.database)
