"""Trigger keys: how long they are kept, and names that they never collide with."""

import pytest
from headway import App, manual
from headway_contract.lifecycle import Activation
from headway_contract.work_queue import CancelOutstandingRequest
from headway_scheduler.operate import cancel
from headway_scheduler.retention import Retention

pytestmark = pytest.mark.thorough


def app_with(kind: type = int, **options) -> App:
    app = App("test")

    @app.job("job", group="ops")
    def job(ctx, number: kind): ...

    app.schedule("a", job=job, when=manual(), **options)
    return app


async def forget(timeline) -> None:
    """Run retention as often as the longest chain needs: the last link is deleted first."""
    retention = Retention(timeline.database, days=30)
    for _ in range(4):
        await retention.run_once()


class TestIsRemembered:
    async def test_from_when_its_work_was_settled(self, timeline):
        await timeline.declare(app_with(input=1))
        first = await timeline.trigger(key="k")
        timeline.at(days=31)
        await timeline.settle("a")
        for days in (31, 60):
            timeline.at(days=days)
            await forget(timeline)
            again = await timeline.trigger(key="k")
            assert (again.result, again.work) == ("known", first.work)
        timeline.at(days=62)
        await forget(timeline)
        again = await timeline.trigger(key="k")
        assert again.result == "queued"
        assert again.work != first.work

    async def test_anew_from_when_the_work_of_a_retried_letter_was_settled(self, timeline):
        await timeline.declare(app_with(input=1))
        first = await timeline.trigger(key="k")
        work, letter = await timeline.dead_letter("a")
        timeline.at(days=20)
        await timeline.resolve("a", work, letter, retried=True)
        await timeline.settle("a")
        timeline.at(days=49)
        await forget(timeline)
        again = await timeline.trigger(key="k")
        assert (again.result, again.work) == ("known", first.work)
        timeline.at(days=51)
        await forget(timeline)
        assert (await timeline.trigger(key="k")).result == "queued"

    async def test_from_when_it_was_cancelled_if_it_never_became_work(self, timeline):
        await timeline.declare(app_with(input=1))
        delay = 40 * 86_400
        assert (await timeline.trigger(key="k", delay_seconds=delay)).result == "owed"
        timeline.at(days=35)
        await timeline.do(cancel.cancel, CancelOutstandingRequest(manifest="a"))
        timeline.at(days=64)
        await forget(timeline)
        assert (await timeline.trigger(key="k", delay_seconds=delay)).result == "known"
        timeline.at(days=66)
        await forget(timeline)
        assert (await timeline.trigger(key="k", delay_seconds=delay)).result == "owed"

    async def test_from_when_its_input_was_found_to_fit_no_longer(self, timeline):
        await timeline.declare(app_with(input=1))
        delay = 40 * 86_400
        await timeline.trigger(key="k", input=7, delay_seconds=delay)
        await timeline.declare(app_with(str, input="one"))
        await timeline.tick(days=41)
        [(_, decision, reason)] = await timeline.ledger("a")
        assert decision == "skipped"
        assert reason.startswith("invalid_input")
        timeline.at(days=70)
        await forget(timeline)
        assert (await timeline.trigger(key="k", input=7, delay_seconds=delay)).result == "known"
        timeline.at(days=72)
        await forget(timeline)
        assert await timeline.ledger("a") == []

    async def assert_kept_with(self, timeline, work) -> None:
        """Assert that the key is kept until a month after its work settled."""
        timeline.at(days=31)
        await forget(timeline)
        assert (await timeline.trigger(key="k")).result == "known"
        await timeline.settle("a")
        timeline.at(days=60)
        await forget(timeline)
        again = await timeline.trigger(key="k")
        assert (again.result, again.work) == ("known", work)
        timeline.at(days=62)
        await forget(timeline)
        assert await timeline.ledger("a") == []

    async def test_for_as_long_as_the_work_that_it_brought_forward(self, timeline):
        await timeline.declare(app_with(input=1))
        under_way = await timeline.trigger(key="other")
        assert (await timeline.trigger(key="k")).result == "brought_forward"
        await self.assert_kept_with(timeline, under_way.work)

    async def test_for_as_long_as_the_work_that_came_instead_of_coalesced(self, timeline):
        await timeline.declare(app_with(input=1))
        first = await timeline.trigger(key="k")
        await timeline.settle("a", "coalesced")
        await timeline.settle("a", "coalesced")
        await self.assert_kept_with(timeline, first.work)

    async def test_from_its_decision_if_its_settling_was_not_recorded(self, timeline):
        """As for rows that were settled before `settled_at` existed."""
        await timeline.declare(app_with(input=1))
        await timeline.trigger(key="k")
        timeline.at(days=20)
        await timeline.settle("a")
        await timeline.rows("UPDATE scheduler.occurrence SET settled_at = NULL")
        timeline.at(days=29)
        await forget(timeline)
        assert (await timeline.trigger(key="k")).result == "known"
        timeline.at(days=31)
        await forget(timeline)
        assert (await timeline.trigger(key="k")).result == "queued"


class TestIsNeverMistaken:
    """A coalesced trigger is queued again under a name that no user key can have."""

    @pytest.mark.parametrize("other", ["k+1", "+1:k", "trigger+1:k"])
    async def test_for_what_is_owed_again(self, timeline, other):
        await timeline.declare(app_with(input=1, overlap="queue_one"))
        await timeline.trigger(key="k", input=7)
        await timeline.settle("a", "coalesced")
        [again] = await timeline.under_way("a")
        answer = await timeline.trigger(key=other, input=8)
        assert answer.result == "owed", "it is a different trigger"
        await timeline.settle("a")
        [after] = await timeline.under_way("a")
        assert after["cause"] == f"trigger:{other}"
        assert again["cause"] == "trigger+1:k"

    async def test_for_what_is_owed_again_later(self, timeline):
        await timeline.declare(app_with(input=1))
        first = await timeline.trigger(key="k+1")
        await timeline.settle("a")
        await timeline.trigger(key="k")
        await timeline.settle("a", "coalesced")
        assert [row["cause"] for row in await timeline.under_way("a")] == ["trigger+1:k"]
        await timeline.settle("a", "coalesced")
        assert [row["cause"] for row in await timeline.under_way("a")] == ["trigger+2:k"]
        await timeline.settle("a")
        again = await timeline.trigger(key="k+1")
        assert (again.result, again.work) == ("known", first.work)

    async def test_if_it_is_that_of_an_activation(self, timeline):
        app = app_with(input=1)
        app.manifest("a").then("sleeper", job="job", input=0, dormant=True, overlap="queue_one")
        await timeline.declare(app)
        parent = (await timeline.trigger()).work
        await timeline.activate("a", parent, Activation(manifest="sleeper", key="k", input=1))
        await timeline.settle("sleeper", "coalesced")
        await timeline.activate("a", parent, Activation(manifest="sleeper", key="k+1", input=2))
        await timeline.settle("sleeper")
        await timeline.settle("sleeper")
        inputs = await timeline.rows(
            "SELECT cause, input FROM scheduler.occurrence WHERE has_input ORDER BY decided_at, cause"
        )
        assert {row["cause"]: row["input"] for row in inputs} == {
            f"activation:{parent}:k": 1,
            f"activation+1:{parent}:k": 1,
            f"activation:{parent}:k+1": 2,
        }
