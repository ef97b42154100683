"""Dead letters and their manifests: slots, blocks and prunes."""

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from headway import App, retry
from headway.client.client import RequestFailed
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.dead_letters import LetterFilter
from headway_contract.work import ManifestPruned, WorkCancelRequested, WorkQueued
from headway_contract.work_queue import CancelAnswer, CancelRequest
from headway_dispatcher.operate import cancel
from headway_jetstream_kit.ask import ask
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.world import until

pytestmark = pytest.mark.thorough


class TestSlots:
    async def test_a_retry_waits_for_the_slot_of_its_manifest(self, ops):
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        ops.mended.set()
        ops.hold.clear()
        other = await ops.queue(manifest_id=manifest, manifest="m")
        await ops.world.until("SELECT count(*) FROM dispatcher.run WHERE state='in_progress'")
        [result] = await ops.client.retry(letter)
        assert (result.result, str(other) in result.text) == ("waits", True)
        [again] = await ops.client.retry(letter)
        assert (again.result, "ada" in again.text) == ("already_asked", True)
        [listed] = await ops.client.dead_letters()
        assert (listed.retry_asked_by, listed.waits_for) == ("ada", other)
        assert (await ops.row(work))["state"] == "settled"
        ops.hold.set()
        await ops.until_outcome(work, "completed")
        assert await ops.client.dead_letters() == []
        rows = await ops.world.rows(
            "SELECT work_id, started_at, finished_at FROM dispatcher.run ORDER BY started_at"
        )
        assert [row["work_id"] for row in rows] == [work, other, work]
        assert rows[1]["finished_at"] <= rows[2]["started_at"], "one after the other"
        await check_invariants(ops.world.database)

    async def test_a_waiting_retry_runs_before_the_next_work_of_its_manifest(self, world, client):
        """Otherwise a manifest that fires all the time would block the retry forever."""
        fixed, release, ran = asyncio.Event(), asyncio.Event(), []
        app = App("test")

        @app.job("job", group="ops", on_dead_letter="go_on")
        @retry(attempts=1)
        async def job(ctx):
            ran.append(ctx.work)
            if not fixed.is_set():
                raise ValueError("boom")
            await release.wait()

        app.schedule("m", job=job, when=when_made_due(), overlap="queue_one")
        dispatcher = await world.dispatcher()
        await world.worker(app)
        await world.fire(app)
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        fixed.set()
        assert (await client.trigger("m")).result == "queued"
        await world.until("SELECT count(*) FROM dispatcher.run WHERE state='in_progress'")
        assert (await client.trigger("m")).result == "owed", "the next work waits"
        [result] = await client.retry(letter)
        assert result.result == "waits"
        # Stop the pass for waiting retries, so that only the settlement can start the retry.
        await dispatcher.end_pass("letters")
        release.set()

        async def all_ran():
            return len(ran) == 4

        await until(all_ran, within=20, what="the letter's work and the next have run")
        failed, other, again, following = ran
        assert failed == again, "the letter's work is next"
        assert following not in (failed, other)
        await world.until_settled(at_least=3)

    @pytest.mark.parametrize(
        "ending",
        [
            "requested",
            "published",
            pytest.param(
                "expired",
                marks=pytest.mark.breaks_tables("sets a start limit that was not published"),
            ),
        ],
    )
    async def test_a_waiting_retry_runs_when_the_other_work_ends_without_a_run(self, ops, ending):
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        ops.mended.set()
        later = utc_now() + timedelta(hours=1)
        other = await ops.queue(manifest_id=manifest, manifest="m", not_before=later)
        await ops.world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", other)
        assert [result.result for result in await ops.client.retry(letter)] == ["waits"]
        # Stop the pass for waiting retries, so that only the settlement can start the retry.
        [dispatcher] = ops.world.services
        await dispatcher.end_pass("letters")
        if ending == "requested":
            await ops.client.cancel(other)
        elif ending == "published":
            requested = WorkCancelRequested(work=other, group="ops", requested_at=utc_now())
            await ops.tell(requested)
        else:
            await ops.world.value(
                "UPDATE dispatcher.work_queue SET start_by = queued_at WHERE id = $1", other
            )
            dispatcher.wake("gate")
        await ops.until_outcome(work, "completed")
        ended = "expired" if ending == "expired" else "cancelled"
        assert (await ops.row(other))["outcome"] == ended
        assert await ops.client.dead_letters() == []

    async def test_an_acknowledgement_or_a_cancel_withdraws_a_waiting_retry(self, ops):
        manifest = uuid4()
        letters = [await ops.letter(manifest_id=manifest, manifest="m") for _ in range(2)]
        ops.mended.set()
        ops.hold.clear()
        await ops.queue(manifest_id=manifest, manifest="m")
        await ops.world.until("SELECT count(*) FROM dispatcher.run WHERE state='in_progress'")
        answers = await ops.client.retry(letters[0][1], letters[1][1])
        assert [result.result for result in answers] == ["waits", "waits"]
        [away] = await ops.client.acknowledge(letters[0][1], note="by hand")
        assert away.result == "acknowledged"
        cancelled = await ops.client.cancel(letters[1][0])
        assert cancelled.result == "already_settled"
        assert "withdrawn" in cancelled.text
        ops.hold.set()
        await ops.world.until(
            "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
        )
        assert len(ops.inputs) == 3, "neither ran again"
        [left] = await ops.client.dead_letters()
        assert (left.dead_letter, left.retry_asked_at) == (letters[1][1], None)

    @pytest.mark.parametrize("whole", ["manifest_id", "group"])
    async def test_a_cancel_in_pages_does_not_start_a_waiting_retry(self, ops, monkeypatch, whole):
        """The first page frees a slot for a dead letter of the next page."""
        monkeypatch.setattr(cancel, "BATCH", 1)
        manifest, first = uuid4(), UUID(int=1)
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        ops.mended.set()
        later = {"queued_at": utc_now(), "not_before": utc_now() + timedelta(hours=1)}
        of = {"group": "ops", "job": "job", "manifest_id": manifest, "manifest": "m"}
        await ops.tell(WorkQueued(work=first, cause="test:first", **of, **later))
        await ops.world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", first)
        assert [result.result for result in await ops.client.retry(letter)] == ["waits"]
        selection = {"manifest_id": manifest} if whole == "manifest_id" else {"group": "ops"}
        counts, more = Counter(), True
        while more:
            answer = await ask(
                ops.world.broker,
                subjects.CANCEL_REQUEST,
                CancelRequest(**selection),
                CancelAnswer,
                timeout=5,
            )
            counts.update(answer.counts)
            more = answer.more
        assert counts == {"settled": 1, "already_settled": 1}
        assert (await ops.row(first))["outcome"] == "cancelled"
        assert (await ops.row(work))["outcome"] == "dead_lettered"
        [left] = await ops.client.dead_letters()
        assert (left.dead_letter, left.retry_asked_at) == (letter, None)

    @pytest.mark.parametrize("whole", ["manifest", "group"])
    async def test_a_cancel_of_a_manifest_or_group_withdraws_a_waiting_retry(
        self, world, client, whole
    ):
        ran = []
        app = App("test")

        @app.job("job", group="ops", on_dead_letter="go_on")
        @retry(attempts=1)
        async def job(ctx):
            ran.append(ctx.work)
            if len(ran) == 1:
                raise ValueError("boom")
            await asyncio.Event().wait()

        app.schedule("m", job=job, when=when_made_due())
        await world.run(app)
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        await client.trigger("m")
        await world.until("SELECT count(*) FROM dispatcher.run WHERE state='in_progress'")
        assert [result.result for result in await client.retry(letter)] == ["waits"]
        cancel = client.cancel_manifest("m") if whole == "manifest" else client.cancel_group("ops")
        answer = await cancel
        assert answer.counts == {"asked_to_stop": 1, "already_settled": 1}
        assert any("withdrawn" in result.text for result in answer.results)
        await world.until_settled(at_least=2)
        [left] = await client.dead_letters()
        assert (left.dead_letter, left.retry_asked_at) == (letter, None)
        assert len(ran) == 2, "the retry never starts"
        await check_invariants(world.database)

    async def test_letters_of_one_slot_run_one_after_the_other(self, ops):
        manifest = uuid4()
        letters = [await ops.letter(manifest_id=manifest, manifest="m") for _ in range(3)]
        ops.mended.set()
        answers = await ops.client.retry_all(LetterFilter(manifest="m"))
        assert [result.result for result in answers] == ["retried", "waits", "waits"]
        for work, _ in letters:
            await ops.until_outcome(work, "completed")
        overlapping = await ops.world.value(
            "SELECT count(*) FROM dispatcher.run AS first JOIN dispatcher.run AS other"
            " ON first.run_id < other.run_id AND first.started_at < other.finished_at"
            " AND other.started_at < first.finished_at"
        )
        assert overlapping == 0
        await check_invariants(ops.world.database)

    async def test_retries_race_with_work_for_the_same_slot(self, ops):
        await ops.world.dispatcher()
        manifests = [uuid4() for _ in range(12)]
        letters = [
            await ops.letter(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        ops.mended.set()
        arrivals = [
            ops.queue(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        retries = [ops.client.retry(letter) for _, letter in letters]
        mixed = [call for pair in zip(arrivals, retries, strict=True) for call in pair]
        answers = await asyncio.gather(*mixed)
        assert {result.result for [result] in answers[1::2]} <= {"retried", "waits"}
        for work, _ in letters:
            await ops.until_outcome(work, "completed")
        await ops.world.until(
            "SELECT NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
        )
        outcomes = await ops.world.rows("SELECT DISTINCT outcome FROM dispatcher.work_queue")
        assert {row["outcome"] for row in outcomes} <= {"completed", "coalesced"}
        await check_invariants(ops.world.database)


class TestPrunes:
    async def test_a_letter_of_a_pruned_manifest_is_not_retried(self, ops):
        manifest = uuid4()
        work, letter = await ops.letter(manifest_id=manifest, manifest="m")
        # Stop the prune pass, so that both the tombstone and the rows exist.
        for service in ops.world.services:
            await service.end_pass("prunes")
        await ops.tell(
            ManifestPruned(manifest_id=manifest, manifest="m", group="ops", pruned_at=utc_now())
        )
        await ops.world.until("SELECT count(*) FROM dispatcher.tombstone")
        [result] = await ops.client.retry(letter)
        assert (result.result, "manifest was deleted" in result.text) == ("pruned", True)
        assert (await ops.row(work))["state"] == "settled"
        assert [result.result for result in await ops.client.acknowledge(letter)] == ["pruned"]

    async def test_retries_race_with_prunes(self, ops):
        manifests = [uuid4() for _ in range(10)]
        letters = [
            await ops.letter(manifest_id=manifest, manifest=f"m{number}")
            for number, manifest in enumerate(manifests)
        ]
        pruned = [
            ops.tell(
                ManifestPruned(manifest_id=manifest, manifest="m", group="ops", pruned_at=utc_now())
            )
            for manifest in manifests
        ]
        retries = [ops.client.retry(letter) for _, letter in letters]
        mixed = [call for pair in zip(pruned, retries, strict=True) for call in pair]
        answers = await asyncio.gather(*mixed)
        assert {result.result for [result] in answers[1::2]} <= {"retried", "pruned", "unknown"}
        await ops.world.until(
            "SELECT count(*) = 10 FROM dispatcher.tombstone WHERE confirmed_at IS NOT NULL"
        )
        for table in ("work_queue", "dead_letter", "metadata"):
            assert await ops.world.value(f"SELECT count(*) FROM dispatcher.{table}") == 0


class TestManifests:
    """The effect of a dead letter on its manifest, with a scheduler."""

    @pytest.mark.parametrize("retried", [True, False])
    async def test_a_letter_blocks_its_manifest_until_it_is_resolved(self, world, client, retried):
        fixed = asyncio.Event()
        app = App("test")

        @app.job("job", group="ops")
        @when_made_due(name="m")
        @retry(attempts=1)
        async def job(ctx):
            if not fixed.is_set():
                raise ValueError("boom")

        await world.run(app)
        letter = await world.until("SELECT blocked_by FROM scheduler.manifest")
        fixed.set()
        name = (await client.manifests())[0].external_id
        with pytest.raises(RequestFailed, match=str(letter)):
            await client.trigger(name)
        act = client.retry if retried else client.acknowledge
        [result] = await act(letter)
        assert result.result == ("retried" if retried else "acknowledged")
        await world.until("SELECT blocked_by IS NULL FROM scheduler.manifest")
        await world.until_settled()
        outcome = await world.value("SELECT outcome FROM scheduler.occurrence")
        assert outcome == ("completed" if retried else "dead_lettered")
        assert (await client.trigger(name)).result == "queued"
        await world.until_settled(at_least=2)
        await check_invariants(world.database)

    async def test_a_policy_lets_the_manifest_continue(self, world, client):
        app = App("test")

        @app.job("job", group="ops", on_dead_letter="go_on")
        @when_made_due(name="m")
        @retry(attempts=1)
        async def job(ctx):
            raise ValueError("boom")

        await world.run(app)
        await world.until("SELECT last_outcome = 'dead_lettered' FROM scheduler.manifest")
        assert await world.value("SELECT blocked_by FROM scheduler.manifest") is None
        [letter] = await client.dead_letters()
        answer = await client.trigger(letter.manifest)
        assert answer.result == "queued"

        async def two_letters():
            return len(await client.dead_letters(manifest=letter.manifest)) == 2

        await until(two_letters, within=20, what="a second dead letter")
        await check_invariants(world.database)
