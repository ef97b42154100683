"""Edge cases in which a manifest must not stop firing for ever."""

import asyncio
from uuid import uuid4

import pytest
from headway import App, allow, every, exclude_times, skip_missed, spaced
from headway.define.definitions import Definitions
from headway_contract.lifecycle import Activation
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.timing import Timing
from headway_errors import Rejected
from headway_scheduler.declare import startup
from headway_scheduler.store import lock_manifests
from support.apps import app_with, at_run_time, jobs_with

pytestmark = pytest.mark.thorough


def outcome_of(
    work, at, outcome: str = "completed", round_number: int = 1, **fields
) -> WorkSettled:
    return WorkSettled(
        work=work["id"],
        round=round_number,
        manifest_id=work["manifest_id"],
        group="any",
        outcome=outcome,
        runs=1,
        attempts=1,
        settled_at=at,
        **fields,
    )


async def tick_at(timeline, *minutes: float) -> None:
    for minute in minutes:
        await timeline.tick(minutes=minute)


class TestFiresThatComeToNothing:
    @pytest.mark.parametrize(
        "when", [every(minutes=5), spaced(minutes=5), every(minutes=5, overlap=allow(2))]
    )
    async def test_a_manifest_goes_on_when_its_input_fits_again(self, timeline, when):
        await timeline.declare(jobs_with(int))
        made = at_run_time(app_with(when).definitions(), input=1)
        await timeline.declare(made)
        await timeline.declare(jobs_with(str))
        await tick_at(timeline, 5, 10)
        assert {decision for _, decision, _ in await timeline.ledger("m")} == {"skipped"}
        await timeline.declare(jobs_with(int))
        await tick_at(timeline, 15, 20, 25, 30)
        assert await timeline.under_way("m")

    async def test_an_activation_that_does_not_fit_lets_the_next_one_pass(self, timeline):
        def family(kind: type) -> App:
            app = jobs_with(kind)
            app.job("parent")(lambda ctx: None)
            chain = app.schedule("parent", job="parent", when=every(minutes=5))
            chain.include("child", job="job", dormant=True, input=kind(1))
            return app

        await timeline.declare(family(int))
        work = uuid4()
        await timeline.change("child", enabled=False)
        await timeline.activate("parent", work, Activation(manifest="child", input=5, key="1"))
        await timeline.declare(family(str))
        await timeline.activate("parent", work, Activation(manifest="child", input="x", key="2"))
        await timeline.change("child", enabled=True)
        await tick_at(timeline, 6, 7)
        assert len(await timeline.under_way("child")) == 1

    async def test_a_clock_that_steps_back_stops_no_manifest(self, timeline):
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        await timeline.settle("m")
        timeline.at(minutes=4.99)
        await timeline.declare(app_with(exclude=[exclude_times("03:00-04:00")]))
        await tick_at(timeline, 5, 10)
        assert [row["cause"] for row in await timeline.under_way("m")] == [
            "due:2027-03-01T12:10:00Z"
        ]

    async def test_a_declaration_reads_the_clock_after_it_has_the_locks(self, world):
        """The tick fires while the declaration waits for locks; that time must not be due again."""
        app = app_with(every(seconds=1))
        await world.declare(app)
        manifest = await world.value("SELECT id FROM scheduler.manifest")
        changed = app_with(every(seconds=2)).definitions()
        async with world.database.transaction() as connection:
            await lock_manifests(connection, [manifest])
            waiting = asyncio.create_task(startup.apply(world.database, changed, policy="keep"))
            await world.until(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            released_at = await connection.fetchval("SELECT clock_timestamp()")
        await waiting
        assert await world.value("SELECT next_due_at FROM scheduler.manifest") > released_at


class TestParents:
    async def test_another_parent_counts_anew_and_nothing_is_lost(self, timeline):
        def chain(parent: str) -> App:
            app = App("app")
            app.job("job")(lambda ctx: None)
            app.schedule(parent, job="job", when=every(minutes=5)).include("child", job="job")
            return app

        await timeline.declare(chain("old"))
        for minute in (5, 10, 15):
            await tick_at(timeline, minute)
            await timeline.settle("old")
            await timeline.settle("child")
        await timeline.declare(chain("new"))
        await timeline.confirm_prunes()
        await tick_at(timeline, 20)
        await timeline.settle("new")
        assert [row["cause"] for row in await timeline.under_way("child")] == ["success:1"]

    async def test_a_dependent_gets_its_parent_back_when_both_are_declared_again(self, timeline):
        parents = app_with()
        await timeline.declare(parents)
        child = at_run_time(
            parents.definitions(),
            external_id="child",
            depends_on="m",
            timing=Timing(cadence=Manual()),
        )
        await timeline.declare(child)
        await timeline.declare(Definitions(owner="app"))
        await timeline.confirm_prunes()
        await timeline.declare(parents)
        await timeline.declare(child)
        await tick_at(timeline, 5)
        await timeline.settle("m")
        assert len(await timeline.under_way("child")) == 1

    async def test_a_dependent_that_was_dormant_waits_for_the_next_success(self, timeline):
        def chain(*, dormant: bool) -> App:
            app = app_with()
            app.manifest("m").include("child", job="job", dormant=dormant)
            return app

        await timeline.declare(chain(dormant=True))
        await tick_at(timeline, 5)
        await timeline.settle("m")
        await timeline.declare(chain(dormant=False))
        await tick_at(timeline, 6)
        assert await timeline.ledger("child") == []


class TestDeadLetters:
    async def retried(self, timeline) -> tuple[dict, DeadLetterRetried]:
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        work, letter = await timeline.dead_letter("m")
        timeline.at(minutes=20)
        row = {"id": work, "manifest_id": await timeline.id_of("m")}
        retry = DeadLetterRetried(
            dead_letter=letter,
            work=work,
            round=2,
            manifest_id=row["manifest_id"],
            group="any",
            resolved_at=timeline.clock.at,
        )
        return row, retry

    async def test_a_round_may_begin_and_end_in_one_batch_in_any_order(self, timeline):
        row, retried = await self.retried(timeline)
        ended = outcome_of(row, timeline.clock.at, round_number=2)
        await timeline.tell(ended)
        await timeline.tell(retried, ended)
        assert await timeline.under_way("m") == []
        assert (await timeline.manifest("m"))["success_number"] == 1
        await tick_at(timeline, 25)
        assert len(await timeline.under_way("m")) == 1

    async def test_a_repeated_retry_message_changes_nothing(self, timeline):
        _, retried = await self.retried(timeline)
        await timeline.tell(retried)
        assert [row["round"] for row in await timeline.under_way("m")] == [2]
        await timeline.settle("m")
        await timeline.tell(retried)
        assert await timeline.under_way("m") == []

    async def test_an_acknowledgement_may_overtake_the_outcome(self, timeline):
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        [work] = await timeline.under_way("m")
        letter = uuid4()
        await timeline.tell(
            DeadLetterAcknowledged(
                dead_letter=letter,
                work=work["id"],
                round=1,
                manifest_id=work["manifest_id"],
                group="any",
                resolved_at=timeline.clock.at,
            )
        )
        await timeline.settle("m", "dead_lettered", dead_letter=letter)
        assert (await timeline.manifest("m"))["blocked_by"] is None

    async def test_retried_work_keeps_its_slot(self, timeline):
        await timeline.declare(app_with(overlap=allow(2)))
        await tick_at(timeline, 5, 10)
        first, second = await timeline.under_way("m")
        letter = uuid4()
        at = timeline.clock.at
        await timeline.tell(outcome_of(second, at, "dead_lettered", dead_letter=letter))
        await timeline.tell(
            DeadLetterRetried(
                dead_letter=letter,
                work=second["id"],
                round=2,
                slot=second["slot"],
                manifest_id=second["manifest_id"],
                group="any",
                resolved_at=at,
            ),
            outcome_of(first, at),
        )
        await tick_at(timeline, 15)
        slots = {row["round"]: row["slot"] for row in await timeline.under_way("m")}
        assert slots == {2: 1, 1: 0}

    async def test_a_manifest_both_disabled_and_blocked_refuses_a_trigger(self, timeline):
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        await timeline.dead_letter("m")
        await timeline.change("m", enabled=False)
        with pytest.raises(Rejected, match="dead letter"):
            await timeline.trigger("m")


class TestSpaced:
    async def test_it_is_never_missed(self, timeline):
        await timeline.declare(app_with(spaced(minutes=5), misfire=skip_missed()))
        await timeline.tick()
        await timeline.settle("m")
        await tick_at(timeline, 60)
        assert len(await timeline.under_way("m")) == 1

    async def test_it_counts_from_a_trigger_too(self, timeline):
        await timeline.declare(app_with(spaced(minutes=10)))
        await timeline.tick()
        await timeline.settle("m")
        timeline.at(minutes=8)
        await timeline.trigger("m")
        await timeline.settle("m")
        await tick_at(timeline, 10)
        assert await timeline.under_way("m") == []
        await tick_at(timeline, 18)
        assert len(await timeline.under_way("m")) == 1


class TestUnknownZones:
    """A time zone that is unknown on this machine stops only its own manifest."""

    async def spoil(self, timeline) -> None:
        await timeline.rows(
            "UPDATE scheduler.manifest"
            " SET timing = jsonb_set(timing, '{zone}', '\"Mars/Base\"') RETURNING id"
        )

    async def test_outcomes_are_taken_in(self, timeline):
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        await self.spoil(timeline)
        timeline.at(minutes=11)
        await timeline.settle("m")
        assert await timeline.under_way("m") == []
        assert "Mars/Base" in (await timeline.manifest("m"))["trouble"]

    async def test_its_group_can_be_switched_and_a_declaration_corrects_it(self, timeline):
        await timeline.declare(app_with())
        await self.spoil(timeline)
        timeline.at(minutes=11)
        for enabled in (False, True):
            await timeline.change_group("job", enabled=enabled)
        await timeline.declare(app_with())
        await tick_at(timeline, 15)
        assert await timeline.under_way("m") == [], "an unchanged definition writes nothing"
        await timeline.declare(app_with(priority=1))
        await tick_at(timeline, 20)
        assert len(await timeline.under_way("m")) == 1

    async def test_a_timing_of_a_newer_version_can_be_replaced(self, timeline):
        await timeline.declare(app_with())
        await timeline.rows(
            'UPDATE scheduler.manifest SET timing = \'{"cadence": {"type": "lunar"}}\','
            " definition_hash = '' RETURNING id"
        )
        await timeline.declare(app_with())
        await tick_at(timeline, 5)
        assert len(await timeline.under_way("m")) == 1
