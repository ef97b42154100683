"""Concurrency keys at the gate: work that cannot run does not block its key; no key is lost."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from headway_contract.fields import Rate
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    RetryPolicy,
    WorkCancelRequested,
)
from headway_contract.work_queue import WorkQuestion
from headway_dispatcher.operate import explain as explanations
from headway_dispatcher.operate.cancel import request_cancels
from headway_dispatcher.runs.settle import Changes
from support.gates import SECOND, START, Gates, bring_forward, switch, waiting_reasons, work
from support.invariants import broken_invariants
from support.tiers import first_in_each_tier

pytestmark = pytest.mark.thorough


async def explain(gates: Gates, queued):
    return await explanations.explain(
        gates.database, None, gates.settings, WorkQuestion(work=queued.work)
    )


CLOSED = {
    "no worker": (),
    "disabled group": (GroupChanged(group="closed", version=1, enabled=False),),
    "full group": (GroupChanged(group="closed", version=1, max_active=0),),
    "full job": (JobChanged(job="nobody", version=1, max_active=0),),
    "rate": (GroupChanged(group="closed", version=1, rate=Rate(count=1, period_seconds=60)),),
}


class TestClosedLanes:
    @pytest.mark.parametrize("why", first_in_each_tier(CLOSED))
    async def test_work_that_cannot_run_does_not_block_its_key(self, gates, clock, why):
        await gates.tell(*CLOSED[why])
        if why != "no worker":
            await gates.worker("nobody", name="other")
        if why == "rate":
            await gates.queue(work(group="closed", job="nobody"))
            assert await gates.drain() == 1
            await gates.end()
        first = work(group="closed", job="nobody", concurrency_key="k", queued_at=START - SECOND)
        second, third = work(concurrency_key="k"), work(concurrency_key="k", job="mail")
        await gates.queue(first, second, third)
        for _ in range(2):
            assert await gates.drain() == 1
            [active] = await gates.active()
            assert active in (second.work, third.work)
            await gates.end()
        # The work that was passed over is next as soon as it can run.
        await gates.queue(work(concurrency_key="k", queued_at=START + SECOND))
        await gates.tell(
            GroupChanged(group="closed", version=2), JobChanged(job="nobody", version=2)
        )
        if why == "no worker":
            await gates.worker("nobody", name="other")
        assert await gates.drain() == 1
        assert await gates.active() == [first.work]

    async def test_a_lane_that_opens_while_its_key_is_taken_waits_for_the_key(self, gates):
        await gates.tell(GroupChanged(group="closed", version=1, max_active=0))
        first = work(group="closed", concurrency_key="k", queued_at=START - SECOND)
        second, third = (work(concurrency_key="k", queued_at=START + n * SECOND) for n in range(2))
        await gates.queue(first, second, third)
        assert await gates.drain() == 1
        await gates.tell(GroupChanged(group="closed", version=2))
        assert await gates.drain() == 0
        assert set((await gates.reasons()).values()) == {"key"}
        await gates.end(second.work)
        assert await gates.drain() == 1
        assert await gates.active() == [first.work]

    async def test_no_more_run_than_may_however_many_lanes_are_ready(self, gates):
        works = [
            work(
                group=f"g{n}",
                concurrency_key="k",
                concurrency_limit=2,
                queued_at=START - n * SECOND,
            )
            for n in range(6)
        ]
        await gates.queue(*works)
        for oldest in (5, 3, 1):
            assert await gates.drain() == 2
            expected = {works[oldest].work, works[oldest - 1].work}
            assert set(await gates.active()) == expected
            await gates.end()
        assert await gates.drain() == 0

    async def test_a_smaller_limit_is_not_overtaken_for_ever_from_another_lane(self, gates):
        def other(number):
            return work(
                job="mail",
                concurrency_key="k",
                concurrency_limit=2,
                queued_at=START + (number - 9) * SECOND,
            )

        small = work(concurrency_key="k", queued_at=START - 8 * SECOND)
        works = [other(0), small, other(2), other(3)]
        await gates.queue(works[0])
        assert await gates.drain() == 1
        await gates.queue(*works[1:])
        assert await gates.drain() == 0
        answer = await explain(gates, works[2])
        assert (answer.reason, answer.ahead, answer.estimated_start) == ("key", 1, None)
        assert "1 of 2 active with key 'k', but other work with this key comes first" in answer.text
        await gates.end()
        await gates.drain()
        assert small.work in await gates.active()


class TestDisabledManifests:
    async def test_work_that_comes_while_its_manifest_is_disabled_leaves_its_key(self, gates):
        manifest = uuid4()
        await gates.tell(switch(manifest, 1, enabled=False))
        held = work(
            manifest_id=manifest, manifest="m", concurrency_key="k", queued_at=START - SECOND
        )
        second = work(concurrency_key="k")
        await gates.queue(held, second)
        assert await gates.drain() == 1
        assert await gates.active() == [second.work]
        assert await gates.reasons() == {held.work: "manifest_disabled"}

    async def test_ready_work_whose_manifest_is_disabled_leaves_its_key(self, gates):
        manifest = uuid4()
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        first = work(queued_at=START - 2 * SECOND)
        held = work(
            manifest_id=manifest, manifest="m", concurrency_key="k", queued_at=START - SECOND
        )
        second = work(concurrency_key="k")
        await gates.queue(first, held, second)
        assert await gates.drain() == 1
        await gates.tell(switch(manifest, 1, enabled=False))
        await gates.end(first.work)
        assert await gates.drain() == 1
        assert await gates.active() == [second.work]


class TestRunNow:
    async def test_work_that_is_brought_forward_comes_before_what_is_ready_of_its_key(self, gates):
        await gates.tell(GroupChanged(group="etl", version=1, max_active=0))
        works = [work(concurrency_key="k", queued_at=START + n * SECOND) for n in range(3)]
        await gates.queue(*works)
        assert await gates.drain() == 0
        async with gates.database.transaction() as connection:
            await bring_forward(connection, works[2].work)
        await gates.tell(GroupChanged(group="etl", version=2))
        for expected in (works[2], works[0], works[1]):
            assert await gates.drain() == 1
            assert await gates.active() == [expected.work]
            await gates.end()

    async def test_a_key_that_is_released_while_its_waiter_is_locked_is_not_lost(self, gates):
        first, second = (
            work(concurrency_key="k", queued_at=START - SECOND),
            work(concurrency_key="k"),
        )
        await gates.queue(first, second)
        assert await gates.drain() == 1
        await gates.end(first.work)
        async with gates.database.transaction() as connection:
            await bring_forward(connection, second.work)
            result = await gates.run()
            # The gate retries soon, and does not spin until then.
            assert (result.admitted, result.rest) == (0, 0.1)
            answer = await explain(gates, second)
            assert (answer.reason, answer.estimated_start) == ("awaiting_gate", START)
        assert await gates.drain() == 1
        assert await gates.active() == [second.work]
        assert await gates.value("SELECT count(*) FROM dispatcher.key_changed") == 0

    async def test_a_shorter_rest_is_kept(self, gates):
        first, second = (
            work(concurrency_key="k", queued_at=START - SECOND),
            work(concurrency_key="k"),
        )
        await gates.queue(first, second, work(not_before=START + timedelta(seconds=0.05)))
        assert await gates.drain() == 1
        await gates.end(first.work)
        async with gates.database.transaction() as connection:
            await bring_forward(connection, second.work)
            assert (await gates.run()).rest == 0.05


@pytest.mark.breaks_tables("forgets that a key has changed")
async def test_a_key_that_was_lost_would_be_noticed(gates):
    first, second = work(concurrency_key="k", queued_at=START - SECOND), work(concurrency_key="k")
    await gates.queue(first, second)
    assert await gates.drain() == 1
    assert await broken_invariants(gates.database) == []
    await gates.end(first.work)
    assert await broken_invariants(gates.database) == []
    await gates.execute("DELETE FROM dispatcher.key_changed")
    [broken] = await broken_invariants(gates.database)
    assert broken.startswith("I6: work waits for a key that has room")
    assert str(second.work) in broken
    # The explanation does not promise that it runs next.
    answer = await explain(gates, second)
    assert (answer.reason, answer.estimated_start) == ("key", None)
    assert "0 of 1 active with key 'k', but other work with this key comes first" in answer.text


@pytest.mark.breaks_tables("marks work as ready by hand, which only a closed lane does")
async def test_a_key_that_a_closed_lane_keeps_would_be_noticed(gates):
    first = work(job="nobody", concurrency_key="k", queued_at=START - SECOND)
    second = work(concurrency_key="k")
    await gates.queue(first, second)
    await gates.execute("UPDATE dispatcher.work_queue SET hold_reason = NULL WHERE job = 'nobody'")
    await gates.execute("DELETE FROM dispatcher.key_changed")
    [broken] = await broken_invariants(gates.database)
    assert str(second.work) in broken


async def cancel(gates, *works: UUID) -> None:
    changes = Changes()
    async with gates.database.transaction() as connection:
        await request_cancels(
            connection,
            [
                WorkCancelRequested(work=work_id, group="etl", reason="enough", requested_at=START)
                for work_id in works
            ],
            START,
            changes,
        )
        await changes.write(connection, now=START)


class TestKeys:
    async def test_one_at_a_time_in_the_order_of_their_rank(self, gates):
        works = [work(concurrency_key="customer:1", queued_at=START - n * SECOND) for n in range(3)]
        await gates.queue(*works, work(concurrency_key="customer:2"))
        assert await gates.drain() == 2
        for expected in (works[2], works[1], works[0]):
            running = await gates.active()
            assert expected.work in running
            assert await gates.end(expected.work) == 1
            await gates.drain()
        assert await gates.value("SELECT count(*) FROM dispatcher.waiting") == 0

    async def test_a_key_is_shared_over_jobs_and_groups(self, gates):
        await gates.queue(
            work(concurrency_key="k"), work(concurrency_key="k", job="mail", group="other")
        )
        assert await gates.drain() == 1
        assert await waiting_reasons(gates) == ["key"]

    async def test_a_limit_above_one(self, gates):
        await gates.queue(*(work(concurrency_key="k", concurrency_limit=3) for _ in range(5)))
        assert await gates.drain() == 3
        await gates.end(*(await gates.active())[:2])
        assert await gates.drain() == 2

    async def test_different_limits_of_a_key_hold_for_the_work_that_states_them(self, gates):
        await gates.queue(
            work(concurrency_key="k", concurrency_limit=2, queued_at=START),
            work(concurrency_key="k", concurrency_limit=1, queued_at=START + SECOND),
            work(concurrency_key="k", concurrency_limit=2, queued_at=START + 2 * SECOND),
        )
        assert await gates.drain() == 1
        await gates.end()
        assert await gates.drain() == 1
        await gates.end()
        assert await gates.drain() == 1

    @pytest.mark.parametrize("state", ["first", "waiting"])
    async def test_work_that_is_cancelled_leaves_its_key_to_the_next(self, gates, state):
        await gates.tell(GroupChanged(group="etl", version=1, max_active=0))
        works = [work(concurrency_key="k", queued_at=START + n * SECOND) for n in range(3)]
        await gates.queue(*works)
        await gates.drain()
        await cancel(gates, works[0 if state == "first" else 1].work)
        await gates.tell(GroupChanged(group="etl", version=2))
        for _ in range(2):
            assert await gates.drain() == 1
            await gates.end()
        assert await gates.drain() == 0

    async def test_a_retry_gives_its_key_up_until_its_time_has_come(self, gates, clock):
        slow = RetryPolicy(interval_seconds=60, jitter=0)
        first = work(concurrency_key="k", retry=slow)
        second = work(concurrency_key="k", queued_at=START + SECOND)
        await gates.queue(first, second)
        await gates.drain()
        await gates.end(failure="Oops")
        assert await gates.drain() == 1
        assert await gates.active() == [second.work]
        assert (await gates.reasons())[first.work] == "retry"
        clock.at = START + 61 * SECOND
        assert await gates.drain() == 0
        assert (await gates.reasons())[first.work] == "key"
        await gates.end()
        assert await gates.drain() == 1
        assert await gates.active() == [first.work]

    async def test_delayed_work_does_not_hold_its_key(self, gates, clock):
        later = work(concurrency_key="k", not_before=START + 60 * SECOND)
        await gates.queue(later, work(concurrency_key="k", queued_at=START + SECOND))
        assert await gates.drain() == 1
        assert later.work not in await gates.active()

    async def test_work_that_is_brought_forward_precedes_other_work_with_its_key(self, gates):
        works = [work(concurrency_key="k", queued_at=START + n * SECOND) for n in range(3)]
        await gates.queue(*works)
        await gates.drain()
        async with gates.database.transaction() as connection:
            await bring_forward(connection, works[2].work)
        await gates.end()
        await gates.drain()
        assert await gates.active() == [works[2].work]
