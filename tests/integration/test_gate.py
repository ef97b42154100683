"""The gate on a real database: limits, keys, rates, holds, expiry, order and run orders."""

from datetime import timedelta

import pytest
from headway_contract.fields import Rate
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    RetryPolicy,
)
from headway_dispatcher.history.verify import verify
from support.gates import SECOND, START, Gates, waiting_reasons, work

pytestmark = pytest.mark.thorough


class TestCaps:
    async def test_a_job_is_capped_over_all_groups_and_others_go_on(self, gates):
        await gates.tell(JobChanged(job="etl", version=1, max_active=2))
        await gates.queue(*(work(group=f"g{n}") for n in range(3)), work(job="mail"))
        assert await gates.drain() == 3
        assert await waiting_reasons(gates) == ["job_cap"]
        await gates.end()
        assert await gates.drain() == 1

    async def test_jobs_that_do_not_count_globally(self, database, clock):
        gates = Gates(database, clock=clock, max_active=1)
        await gates.watch_caps()
        await gates.worker("etl", "mail")
        await gates.tell(JobChanged(job="mail", version=1, counts_globally=False))
        await gates.queue(*(work() for _ in range(3)), *(work(job="mail") for _ in range(3)))
        assert await gates.drain() == 4
        assert await waiting_reasons(gates) == ["global_cap", "global_cap"]

    @pytest.mark.parametrize("kind", ["group", "job"])
    async def test_lowering_a_cap_below_what_runs_stops_new_dispatches_only(self, gates, kind):
        def cap(version, most):
            if kind == "group":
                return GroupChanged(group="etl", version=version, max_active=most)
            return JobChanged(job="etl", version=version, max_active=most)

        await gates.tell(cap(1, 4))
        await gates.queue(*(work() for _ in range(8)))
        assert await gates.drain() == 4
        await gates.tell(cap(2, 2))
        running = await gates.active()
        await gates.end(*running[:2])
        assert await gates.drain() == 0
        assert sorted(await gates.active()) == sorted(running[2:])
        await gates.end(running[2])
        assert await gates.drain() == 1
        # An older version that arrives late changes nothing.
        await gates.tell(cap(1, 4))
        assert await gates.drain() == 0

    async def test_a_job_without_a_worker_waits_and_holds_no_slot(self, gates):
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        await gates.queue(*(work(job="nobody") for _ in range(300)), work())
        assert await gates.drain() == 1
        assert set(await waiting_reasons(gates)) == {"no_worker"}


class TestRates:
    @pytest.mark.parametrize("kind", ["group", "job"])
    async def test_work_beyond_a_rate_waits_until_the_rate_allows_it(self, gates, clock, kind):
        rate = Rate(count=3, period_seconds=60)
        change = (
            GroupChanged(group="etl", version=1, rate=rate)
            if kind == "group"
            else JobChanged(job="etl", version=1, rate=rate)
        )
        await gates.tell(change)
        await gates.queue(*(work() for _ in range(8)), work(group="other", job="mail"))
        assert await gates.drain() == 4
        await gates.end()
        clock.at = START + 20 * SECOND
        result = await gates.run()
        assert (result.admitted, result.rest) == (0, 40.0)
        assert await waiting_reasons(gates) == ["rate"] * 5
        clock.at = START + 60 * SECOND
        assert await gates.drain() == 3
        assert (await gates.run()).rest == 60.0

    async def test_all_gates_share_it(self, gates, database):
        await gates.tell(
            GroupChanged(group="etl", version=1, rate=Rate(count=3, period_seconds=60))
        )
        await gates.queue(*(work() for _ in range(8)))
        others = [gates.another(database) for _ in range(4)]
        assert sum([(await gate.run_once()).admitted for gate in others]) == 3

    async def test_retries_count(self, gates, clock):
        await gates.tell(
            GroupChanged(group="etl", version=1, rate=Rate(count=1, period_seconds=60))
        )
        await gates.queue(work(retry=RetryPolicy(interval_seconds=1, jitter=0)))
        assert await gates.drain() == 1
        await gates.end(failure="Oops")
        clock.at = START + 2 * SECOND
        assert await gates.drain() == 0
        clock.at = START + 60 * SECOND
        assert await gates.drain() == 1


class TestTimes:
    async def test_delayed_work_wakes_the_gate(self, gates, clock):
        await gates.queue(work(not_before=START + 90 * SECOND))
        assert (await gates.run()).rest == 90.0
        assert await waiting_reasons(gates) == ["not_before"]
        clock.at = START + 90 * SECOND
        assert await gates.drain() == 1

    async def test_due_work_that_is_locked_does_not_make_the_gate_spin(
        self, gates, clock, database
    ):
        [delayed] = await gates.queue(work(not_before=START + 90 * SECOND))
        clock.at = START + 90 * SECOND
        async with database.transaction() as connection:
            await connection.execute(
                "SELECT FROM dispatcher.work_queue WHERE id = $1 FOR UPDATE", delayed
            )
            assert (await gates.run()).rest == 0.1
        assert await gates.drain() == 1

    async def test_work_that_has_not_begun_in_time_expires_with_its_reason(self, gates, clock):
        await gates.tell(GroupChanged(group="etl", version=1, max_active=0))
        [late] = await gates.queue(work(start_by=START + 30 * SECOND))
        assert (await gates.run()).rest == 30.0
        clock.at = START + 30 * SECOND
        assert (await gates.run()).expired == 1
        [row] = await gates.rows("SELECT * FROM dispatcher.work_queue")
        assert (row["state"], row["outcome"], row["runs"]) == ("settled", "expired", 0)
        [message] = await gates.rows(
            "SELECT convert_from(body, 'utf8')::jsonb AS body FROM dispatcher.outbox"
        )
        assert message["body"]["type"] == "headway.work.settled.v1"
        assert message["body"]["data"]["work"] == str(late)
        assert message["body"]["data"]["outcome"] == "expired"
        assert "did not start before its deadline" in message["body"]["data"]["reason"]

    async def test_expired_work_is_never_admitted_however_much_there_is(self, gates, clock):
        await gates.queue(*(work(start_by=START + SECOND) for _ in range(1100)))
        clock.at = START + SECOND
        assert await gates.drain() == 0
        assert (
            await gates.value(
                "SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'expired'"
            )
            == 1100
        )

    async def test_expired_work_gives_up_what_it_waited_for(self, gates, clock):
        first = work(concurrency_key="k", start_by=START + SECOND)
        await gates.tell(GroupChanged(group="etl", version=1, max_active=0))
        await gates.queue(first, work(concurrency_key="k", queued_at=START + SECOND))
        await gates.drain()
        clock.at = START + SECOND
        await gates.drain()
        await gates.tell(GroupChanged(group="etl", version=2))
        assert await gates.drain() == 1

    async def test_work_that_was_tried_in_time_may_be_tried_again_later(self, gates, clock):
        await gates.queue(
            work(start_by=START + SECOND, retry=RetryPolicy(interval_seconds=60, jitter=0))
        )
        assert await gates.drain() == 1
        await gates.end(failure="Oops")
        clock.at = START + 61 * SECOND
        assert await gates.drain() == 1

    async def test_work_that_began_in_time_and_was_handed_back_does_not_expire(self, gates, clock):
        """A hand-back does not count as an attempt, but the work began in time."""
        [begun, unbegun] = await gates.queue(
            work(start_by=START + SECOND), work(start_by=START + SECOND)
        )
        assert await gates.drain() == 2
        await gates.begin(begun)
        clock.at = START + 2 * SECOND
        await gates.end(failure="worker_stopped")
        assert await gates.drain() == 1
        assert await gates.active() == [begun]
        rows = await gates.rows("SELECT id, attempts, start_by, outcome FROM dispatcher.work_queue")
        assert {tuple(row.values()) for row in rows} == {
            (begun, 0, None, None),
            (unbegun, 0, START + SECOND, "expired"),
        }
        assert (await verify(gates.database)).differences == []


class TestOrder:
    async def admitted_one_by_one(self, gates, works):
        await gates.tell(GroupChanged(group="etl", version=1, max_active=None))
        await gates.queue(*works)
        names = {queued.work: n for n, queued in enumerate(works)}
        found = []
        while await gates.drain():
            found += [names[work_id] for work_id in await gates.active()]
            await gates.end()
        return found

    @pytest.fixture
    async def gates(self, database, clock):
        made = Gates(database, clock=clock, max_active=1)
        await made.worker("etl", "mail")
        return made

    async def test_by_group_then_by_priority_then_by_age(self, gates):
        await gates.tell(GroupChanged(group="high", version=1, priority=1))
        works = [
            work(queued_at=START),
            work(queued_at=START - SECOND),
            work(priority=1, queued_at=START),
            work(priority=31, queued_at=START),
            work(group="high", queued_at=START),
            work(group="high", priority=1, job="mail", queued_at=START),
        ]
        assert await self.admitted_one_by_one(gates, works) == [5, 4, 3, 2, 1, 0]

    async def test_age_beats_priority_in_the_end(self, gates):
        await gates.tell(GroupChanged(group="high", version=1, priority=1))
        hour = timedelta(hours=1)
        works = [
            work(priority=31, queued_at=START),
            work(queued_at=START - hour),
            work(group="high", queued_at=START),
        ]
        assert await self.admitted_one_by_one(gates, works) == [1, 2, 0]

    async def test_no_work_starves_behind_an_endless_stream_of_higher_priority(self, gates, clock):
        """Work of the lowest priority runs while the highest group is never empty."""
        await gates.tell(GroupChanged(group="high", version=1, priority=1))
        [patient] = await gates.queue(work())
        for minute in range(100):
            clock.at = START + timedelta(minutes=minute)
            await gates.queue(work(group="high", priority=31, queued_at=clock.at))
            assert await gates.drain() == 1
            if patient in await gates.active():
                break
            await gates.end()
        # A step of entry priority is worth one minute of age; a step of group priority is worth 32.
        assert minute == 63
