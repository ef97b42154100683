"""Operators' changes around the start of an application."""

import asyncio

import pytest
from headway import App, every, once
from headway.define.definitions import Definitions
from headway_contract.manifests import ChangeRequest
from headway_errors import Rejected
from headway_scheduler.declare import startup
from headway_scheduler.operate import changes
from support.apps import app_with, at_run_time, jobs_with

pytestmark = pytest.mark.thorough


class TestOperatorsAndStarts:
    async def test_a_start_that_was_overtaken_prunes_nothing(self, timeline):
        """A newer process declares between the declaration and the prune of an older process."""
        both, old = app_with(), app_with().definitions()
        both.schedule("other", job="job", when=every(minutes=5))
        await timeline.declare(both)
        declared = await startup.declare(timeline.database, old, source="old")
        timeline.at(minutes=1)
        await timeline.declare(both)
        cleaning = startup._Cleaning(timeline.database, "app", "old", declared.at)
        _, left = startup.leaving(old, declared.gone)
        assert [manifest.external_id for manifest in left] == ["other"]
        assert await cleaning.prune(left, "is gone") == []
        assert "another start has declared meanwhile" in cleaning.warnings[0]
        assert await timeline.manifest("other") is not None

    async def test_a_field_that_was_given_back_follows_the_code_at_the_next_start(self, timeline):
        await timeline.declare(app_with())
        await timeline.change("m", enabled=False, jitter_seconds=30, attempts=7)
        await timeline.change("m", give_back=["enabled", "retry", "jitter"])
        await timeline.declare(app_with())
        row = await timeline.manifest("m")
        assert (row["enabled"], row["jitter_seconds"], row["terms"]["retry"]["attempts"]) == (
            True,
            0,
            3,
        )

    async def test_concurrent_changes_of_two_operators_are_both_kept(self, timeline):
        await timeline.declare(app_with())
        async with timeline.database.transaction() as connection:
            first = ChangeRequest(manifest="m", attempts=9)
            await changes.change(connection, first, now=timeline.clock.at)
            second = asyncio.create_task(timeline.change("m", jitter_seconds=30))
            for _ in range(100):
                waiting = (
                    "SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                )
                if (await timeline.rows(waiting))[0]["n"]:
                    break
                await asyncio.sleep(0.02)
        await second
        row = await timeline.manifest("m")
        assert (row["terms"]["retry"]["attempts"], row["jitter_seconds"]) == (9, 30)

    async def test_a_one_shot_that_jitter_holds_back_survives_a_deployment(self, timeline):
        def shots(timeout: float) -> App:
            app = App("app")
            app.job("job")(lambda ctx: None)
            for number in range(30):
                when = once("2027-03-01 12:05", jitter=3600)
                app.schedule(f"shot-{number}", job="job", when=when, timeout=timeout)
            return app

        await timeline.declare(shots(100))
        timeline.at(minutes=7)
        held = await timeline.rows(
            "SELECT count(*) AS n, max(wake_at) AS last FROM scheduler.manifest WHERE wake_at > $1",
            timeline.clock.at,
        )
        assert held[0]["n"] > 0, "precondition of this test"
        await timeline.tick(max_entries=None)
        await timeline.declare(shots(101))
        timeline.clock.at = held[0]["last"]
        assert (await timeline.tick(max_entries=None)).fired == held[0]["n"]

    async def test_an_application_cannot_redeclare_a_foreign_job_with_another_input(self, timeline):
        await timeline.declare(jobs_with(int))
        with pytest.raises(
            Exception, match="declared by the application 'jobs' with another input"
        ):
            await timeline.declare(app_with(name="thief"))

    @pytest.mark.parametrize(
        ("given", "complaint"), [("x" * 300_000, "larger than"), ("a\x00b", "NUL character")]
    )
    async def test_an_input_that_cannot_be_sent_is_refused(self, timeline, given, complaint):
        await timeline.declare(jobs_with(str))
        await timeline.declare(at_run_time(app_with().definitions(), input="x"))
        with pytest.raises(Rejected, match=complaint):
            await timeline.trigger("m", input=given)
        assert await timeline.ledger("m") == []

    async def test_a_group_that_an_operator_has_touched_outlives_its_manifests(self, timeline):
        await timeline.declare(app_with())
        await timeline.change_group("job", max_active=1)
        await timeline.declare(Definitions(owner="app"))
        await timeline.confirm_prunes()
        await timeline.declare(app_with())
        rows = await timeline.rows("SELECT max_active FROM scheduler.manifest_group")
        assert [row["max_active"] for row in rows] == [1]
