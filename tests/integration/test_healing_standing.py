"""Reconciliation of blocks, settings and prunes, and the dispatcher's answers."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from headway import App, retry
from headway_contract import subjects
from headway_contract.reconcile import OutstandingWork, ReconcileAnswer
from headway_scheduler.healing import reconcile_settings
from headway_scheduler.healing.healing import CannotAsk
from support.apps import nightly
from support.cadences import when_made_due
from support.healing import QUICK, ask, deaf_dispatcher, purge
from support.invariants import check_invariants

pytestmark = pytest.mark.thorough


@pytest.fixture
def app():
    return nightly()


class TestBlocks:
    """Messages about a manifest that a dead letter blocks are lost."""

    @pytest.fixture
    async def failing(self, world):
        app = App("test")

        @app.job("job", group="ops")
        @when_made_due()
        @retry(attempts=1)
        async def job(ctx):
            raise RuntimeError("no")

        await world.serve(app)
        return app

    async def blocked(self, world, app):
        await world.fire(app)
        await world.until("SELECT blocked_by IS NOT NULL FROM scheduler.manifest")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        return await world.value("SELECT blocked_by FROM scheduler.manifest")

    async def test_a_letter_whose_outcome_was_lost_blocks_all_the_same(self, world, failing):
        await world.declare(failing)
        await world.make_due()
        scheduler = await world.scheduler(failing, ask_after_seconds=3600)
        await scheduler.end_pass("intake")
        await world.until("SELECT count(*) FROM dispatcher.dead_letter")
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by IS NOT NULL FROM scheduler.manifest")
        letter = await world.value("SELECT id FROM dispatcher.dead_letter")
        assert await world.value("SELECT blocked_by FROM scheduler.manifest") == letter
        await check_invariants(world.database)

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    @pytest.mark.parametrize(
        "lost",
        [
            "UPDATE dispatcher.dead_letter"
            " SET state = 'acknowledged', resolved_at = clock_timestamp(), actor = 'ada'",
            "DELETE FROM dispatcher.dead_letter",
        ],
        ids=["acknowledgement", "deletion"],
    )
    async def test_a_lost_acknowledgement_or_deletion_unblocks_the_manifest(
        self, world, failing, lost
    ):
        await self.blocked(world, failing)
        await world.value(lost)
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by IS NULL FROM scheduler.manifest")

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_a_lost_retry_makes_the_work_outstanding_again(self, world, failing):
        letter = await self.blocked(world, failing)
        await world.value(
            "UPDATE dispatcher.dead_letter SET state = 'retried', resolved_at = clock_timestamp()"
        )
        await world.value(
            "UPDATE dispatcher.work_queue SET round = 2, state = 'queued', wait_reason = 'x',"
            " outcome = NULL, settled_at = NULL, attempts = 0"
        )
        await world.scheduler(**QUICK)
        await world.until("SELECT blocked_by <> $1 FROM scheduler.manifest", letter)
        assert await world.value("SELECT count(*) FROM dispatcher.run WHERE round = 2") == 1
        [row] = await world.rows("SELECT settled_round, outcome FROM scheduler.occurrence")
        assert tuple(row) == (2, "dead_lettered")

    async def test_a_letter_that_waits_for_a_person_goes_on_blocking(self, world, failing):
        letter = await self.blocked(world, failing)
        answer = await ask(world, dead_letters=[letter])
        assert (answer.retried, answer.acknowledged, answer.forgotten) == ([], [], [])


class TestLettersThatBlockNothing:
    """The scheduler also tracks dead letters of a manifest that they do not block."""

    @pytest.fixture
    async def mended(self):
        return asyncio.Event()

    @pytest.fixture
    async def app(self, world, mended):
        app = App("test")

        @app.job("job", group="ops", on_dead_letter="go_on")
        @retry(attempts=1)
        async def job(ctx):
            if not mended.is_set():
                raise RuntimeError("no")
            await ctx.activate("dormant")

        @app.job("other", group="ops")
        async def other(ctx): ...

        app.schedule("m", job=job, when=when_made_due())
        app.manifest("m").then("after", job=other)
        app.manifest("m").then("dormant", job=other, dormant=True)
        await world.serve(app)
        return app

    async def letter(self, world, app) -> UUID:
        """Return a dead letter that the scheduler knows; later messages are lost."""
        await world.declare(app)
        await world.make_due("m")
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await world.until(
            "SELECT last_outcome = 'dead_lettered' FROM scheduler.manifest WHERE external_id = 'm'"
        )
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        await scheduler.end_pass("intake")
        return await world.value("SELECT id FROM dispatcher.dead_letter")

    async def lose_messages(self, world) -> None:
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)

    async def test_a_success_after_a_retry_counts_although_both_messages_were_lost(
        self, world, client, app, mended
    ):
        letter = await self.letter(world, app)
        mended.set()
        assert [answer.result for answer in await client.retry(letter)] == ["retried"]
        await world.until("SELECT outcome = 'completed' FROM dispatcher.work_queue")
        await self.lose_messages(world)
        await world.scheduler(**QUICK)
        await world.until(
            "SELECT success_number = 1 FROM scheduler.manifest WHERE external_id = 'm'"
        )
        await world.until_settled(at_least=3)
        rows = await world.rows(
            "SELECT external_id, last_outcome FROM scheduler.manifest ORDER BY external_id"
        )
        assert [tuple(row) for row in rows] == [
            ("after", "completed"),
            ("dormant", "completed"),
            ("m", "completed"),
        ]
        await check_invariants(world.database)

    async def test_an_acknowledged_letter_is_not_asked_about_again(self, world, client, app):
        letter = await self.letter(world, app)
        assert [answer.result for answer in await client.acknowledge(letter)] == ["acknowledged"]
        await self.lose_messages(world)
        assert await world.value("SELECT dead_letter FROM scheduler.unresolved") == letter
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.unresolved)")
        assert await world.value("SELECT NOT EXISTS (SELECT FROM scheduler.work)")


class TestPagesOfLetters:
    """Dead letters that block nothing are unbounded, so each pass asks about one page."""

    @pytest.fixture
    async def letters(self, world, monkeypatch):
        """Return five dead letters of a manifest; a question has room for two."""
        monkeypatch.setattr(reconcile_settings, "RECONCILE_LIMIT", 2)
        await world.declare(nightly())
        rows = await world.rows(
            "INSERT INTO scheduler.unresolved SELECT gen_random_uuid(), manifest.id"
            " FROM scheduler.manifest, generate_series(1, 5) RETURNING dead_letter"
        )
        return sorted(row["dead_letter"] for row in rows)

    @pytest.fixture
    def questioned(self):
        return []

    @pytest.fixture
    def answers(self):
        """Return the answers; the last is given to every question, `None` means no answer."""
        return [ReconcileAnswer()]

    @pytest.fixture
    def standing(self, world, questioned, answers):
        async def ask(question):
            questioned.extend(question.dead_letters)
            if answers[-1] is None:
                raise CannotAsk("nobody answers")
            return answers[-1]

        return reconcile_settings.SettingsReconciler(world.database, ask=ask, every=0)

    async def run_once(self, standing, questioned) -> list[UUID]:
        questioned.clear()
        await standing.run(lambda sent_at: False)
        return list(questioned)

    async def test_all_at_first_and_in_doubt_then_one_page_after_the_other(
        self, letters, standing, questioned
    ):
        assert await self.run_once(standing, questioned) == letters
        for page in (letters[:2], letters[2:4], letters[4:], letters[:2]):
            assert await self.run_once(standing, questioned) == page
        standing.run_at_once()
        assert await self.run_once(standing, questioned) == letters

    async def test_all_again_without_an_answer(self, letters, standing, questioned, answers):
        answers.append(None)
        with pytest.raises(CannotAsk):
            await self.run_once(standing, questioned)
        assert questioned == letters[:2]
        answers.append(ReconcileAnswer())
        assert await self.run_once(standing, questioned) == letters

    async def test_from_the_beginning_if_the_others_were_resolved(
        self, world, letters, standing, questioned
    ):
        for _ in range(2):
            await self.run_once(standing, questioned)
        await world.value(
            "DELETE FROM scheduler.unresolved WHERE dead_letter = ANY($1)", letters[2:]
        )
        assert await self.run_once(standing, questioned) == []
        assert await self.run_once(standing, questioned) == letters[:2]


class TestStanding:
    async def test_lost_limits_are_republished(self, world, app):
        await deaf_dispatcher(world, knows_limits=False)
        await world.scheduler(app, **QUICK)
        await world.until("SELECT count(*) FROM scheduler.manifest_group")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await purge(world, subjects.WORK_STREAM)
        await world.dispatcher()
        for table, known in (("manifest_group", "group_limit"), ("job", "job_limit")):
            await world.until(
                f"SELECT known.version = source.version FROM dispatcher.{known} AS known"
                f" JOIN scheduler.{table} AS source USING (name)"
            )

    async def test_a_lost_switch_is_republished(self, world, client, app):
        await world.dispatcher()
        scheduler = await world.scheduler(app, ask_after_seconds=3600)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await scheduler.end_pass("relay")
        [row] = await world.rows("SELECT external_id FROM scheduler.manifest")
        await client.disable(row["external_id"])
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT enabled FROM dispatcher.manifest_switch")

    async def test_a_lost_prune_is_republished(self, world, app):
        await world.dispatcher()
        await world.declare(app)
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.outbox)")
        await scheduler.end_pass("relay")
        await world.declare(App("test"))
        await world.value("DELETE FROM scheduler.outbox")
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")
        [tombstone] = await world.rows("SELECT reason FROM dispatcher.tombstone")
        assert tombstone["reason"] == "no longer declared", "as in the first message"

    async def test_a_confirmation_that_was_lost_comes_with_the_answer(self, world, app):
        await world.dispatcher()
        await world.declare(app)
        scheduler = await world.scheduler(ask_after_seconds=3600)
        await scheduler.end_pass("intake")
        await world.declare(App("test"))
        await world.until(
            "SELECT count(*) FROM dispatcher.tombstone WHERE confirmed_at IS NOT NULL"
        )
        await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
        await purge(world, subjects.SETTLED_STREAM)
        await world.scheduler(**QUICK)
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.manifest)")


class TestAnswers:
    """Answers of a dispatcher to reconcile questions, seen from the wire."""

    async def test_unknown_work_is_unknown_unless_it_is_too_old_or_its_manifest_is_gone(
        self, world
    ):
        await world.dispatcher(history_days=30)
        gone, young, old, round_two, pruned = (uuid4() for _ in range(5))
        await world.value(
            "INSERT INTO dispatcher.tombstone (manifest_id, manifest, group_name, reason, pruned_at)"
            " VALUES ($1, 'm', 'ops', '', clock_timestamp())",
            gone,
        )
        now = await world.value("SELECT clock_timestamp()")
        works = [
            OutstandingWork(work=young, queued_at=now - timedelta(days=29)),
            OutstandingWork(work=old, queued_at=now - timedelta(days=31)),
            OutstandingWork(work=round_two, round=2, queued_at=now),
            OutstandingWork(work=pruned, manifest_id=gone, queued_at=now),
        ]
        answer = await ask(world, works=works)
        assert answer.unknown == [young]
        assert set(answer.expired) == {old, round_two}
        assert [(settled.work, settled.outcome) for settled in answer.settled] == [
            (pruned, "cancelled")
        ]

    @pytest.mark.breaks_tables("what is resolved or added here has no event of its own")
    async def test_an_answer_is_bounded_and_names_the_work_it_left_out(self, world, app):
        await world.run(app)
        await world.until_settled()
        [row] = await world.rows("SELECT id FROM dispatcher.work_queue")
        work = row["id"]
        columns = await world.value(
            "SELECT string_agg(column_name, ', ') FROM information_schema.columns"
            " WHERE table_schema = 'dispatcher' AND table_name = 'work_queue'"
            " AND is_generated = 'NEVER'"
        )
        await world.value(
            f"INSERT INTO dispatcher.work_queue ({columns}) SELECT {columns} FROM ("
            "SELECT (jsonb_populate_record(work_queue,"
            " jsonb_build_object('id', gen_random_uuid(), 'slot', n, 'cancel_reason',"
            " repeat('x', 300000), 'cancel_requested_at', clock_timestamp()))).*"
            " FROM dispatcher.work_queue, generate_series(1, 4) AS n) AS copies"
        )
        rows = await world.rows(
            "SELECT id, queued_at FROM dispatcher.work_queue ORDER BY id = $1", work
        )
        works = [OutstandingWork(work=row["id"], queued_at=row["queued_at"]) for row in rows]
        answer = await ask(world, works=works)
        assert len(answer.settled) == 2
        assert {settled.work for settled in answer.settled} | set(answer.left) == {
            outstanding.work for outstanding in works
        }
