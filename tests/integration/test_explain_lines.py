"""Explanations of waiting work: the work ahead, the slot holders, and the estimated start."""

from datetime import timedelta
from random import Random

import pytest
from headway_contract.fields import Rate
from headway_contract.work import GroupChanged, JobChanged
from headway_contract.work_queue import ExplainWorkAnswer, WorkQuestion
from headway_dispatcher.operate import explain as explanations
from support.gates import SECOND, START, Gates, SetClock, work

pytestmark = pytest.mark.thorough

HOUR = timedelta(hours=1)


@pytest.fixture
async def gates(database, clock):
    return Gates(database, clock=clock, max_active=2)


async def explain(gates: Gates, queued) -> ExplainWorkAnswer:
    return await explanations.explain(
        gates.database, None, gates.settings, WorkQuestion(work=queued.work)
    )


def numbered(number: int, **fields):
    """Return work that was queued before all work with a higher number."""
    return work(queued_at=START + (number - 99) * SECOND, **fields)


async def fill_global_limit(gates: Gates) -> None:
    """Fill every slot of the global limit."""
    await gates.worker("etl", "mail")
    await gates.queue(numbered(0), numbered(1))
    assert await gates.drain() == 2


async def record_run(gates: Gates, clock: SetClock, job: str, seconds: float) -> None:
    """Record a run of a job that took these seconds and ended at the start of the clock."""
    done = numbered(0, job=job, group="past")
    clock.at = START - timedelta(seconds=seconds)
    await gates.queue(done)
    assert await gates.drain() == 1
    await gates.begin(done.work)
    clock.at = START
    await gates.end(done.work)


class TestAhead:
    async def test_the_global_limit_counts_other_groups(self, gates):
        await fill_global_limit(gates)
        other, mine = numbered(2, group="other", job="mail"), numbered(3)
        await gates.queue(other, mine)
        answer = await explain(gates, mine)
        assert (answer.reason, answer.ahead) == ("global_cap", 1)

    async def test_the_priority_of_groups_counts(self, gates):
        await fill_global_limit(gates)
        await gates.tell(GroupChanged(group="vip", version=1, priority=1))
        early, late = numbered(2), numbered(3, group="vip")
        await gates.queue(early, late)
        assert (await explain(gates, early)).ahead == 1
        assert (await explain(gates, late)).ahead == 0
        await gates.end((await gates.active())[0])
        assert await gates.drain() == 1
        assert late.work in await gates.active()

    async def test_the_limit_of_a_job_counts_other_groups(self, gates):
        await gates.worker("etl", "mail")
        await gates.tell(JobChanged(job="etl", version=1, max_active=1))
        first, other, mine = numbered(0), numbered(1, group="other"), numbered(3)
        mail = numbered(2, job="mail", group="late")
        await gates.queue(first, other, mine)
        await gates.drain()
        await gates.queue(mail)
        answer = await explain(gates, mine)
        assert (answer.reason, answer.ahead) == ("job_cap", 1)
        assert [holder.work for holder in answer.holders] == [first.work]

    async def test_work_that_cannot_run_is_not_ahead(self, gates):
        await fill_global_limit(gates)
        await gates.tell(
            GroupChanged(group="off", version=1, enabled=False),
            GroupChanged(group="shut", version=1, max_active=0),
            GroupChanged(group="slow", version=1, rate=Rate(count=1, period_seconds=60)),
        )
        await gates.end()
        await gates.queue(numbered(2, group="slow"), numbered(3))
        assert await gates.drain() == 2
        mine = numbered(50)
        await gates.queue(
            *(numbered(n, job="nobody") for n in range(10, 13)),
            *(numbered(n, group="off") for n in range(20, 23)),
            *(numbered(n, group="shut") for n in range(30, 33)),
            *(numbered(n, group="slow") for n in range(40, 43)),
            mine,
        )
        answer = await explain(gates, mine)
        assert (answer.reason, answer.ahead) == ("global_cap", 0)

    async def test_work_that_cannot_run_is_not_ahead_for_a_key(self, gates):
        await gates.worker("etl", "mail")
        await gates.tell(GroupChanged(group="off", version=1, enabled=False))
        holder, off = (
            numbered(0, concurrency_key="k"),
            numbered(1, group="off", concurrency_key="k"),
        )
        mine = numbered(2, concurrency_key="k")
        await gates.queue(holder)
        assert await gates.drain() == 1
        await gates.queue(off, mine)
        await gates.drain()
        answer = await explain(gates, mine)
        assert (answer.reason, answer.ahead) == ("key", 0)


@pytest.mark.parametrize("seed", range(4))
async def test_the_work_ahead_matches_the_order_of_the_gate(database, clock, seed):
    gates, chance = Gates(database, clock=clock, max_active=1), Random(seed)
    await gates.worker("etl", "mail")
    changes = [GroupChanged(group=f"g{n}", version=1, priority=chance.randint(0, 2)) for n in "abc"]
    await gates.tell(*changes, GroupChanged(group="off", version=1, enabled=False))
    running = numbered(0)
    await gates.queue(running)
    assert await gates.drain() == 1
    works = [
        numbered(
            number,
            group=chance.choice(["ga", "gb", "gc", "off"]),
            job=chance.choice(["etl", "mail", "nobody"]),
            priority=chance.randint(0, 3),
        )
        for number in range(1, 25)
    ]
    await gates.queue(*works)
    can_run = [each for each in works if each.group != "off" and each.job != "nobody"]
    ahead = {each.work: (await explain(gates, each)).ahead for each in can_run}
    assert sorted(ahead.values()) == list(range(len(can_run)))
    order = []
    for _ in can_run:
        await gates.end()
        assert await gates.drain() == 1
        order += await gates.active()
    assert order == sorted(ahead, key=lambda work: ahead[work])


class TestHolders:
    @pytest.mark.breaks_tables("claims leases without an event")
    async def test_only_runs_on_workers_that_serve_its_job_are_holders(self, gates):
        await gates.worker("etl", slots=1, name="first")
        await gates.worker("mail", slots=5, name="second")
        theirs, mail = numbered(0), numbered(1, job="mail")
        await gates.queue(theirs, mail)
        assert await gates.drain() == 2
        await gates.execute(
            "UPDATE dispatcher.lease SET nonce = named.name, claimed_by = named.name,"
            " last_heard_at = clock_timestamp()"
            " FROM dispatcher.worker AS named WHERE lease.job = ANY(named.jobs)"
        )
        gates.settings = Gates(gates.database, clock=gates.clock, max_active=100).settings
        mine = numbered(2)
        await gates.queue(mine)
        answer = await explain(gates, mine)
        assert [gate.open for gate in answer.gates if gate.gate == "workers_full"] == [True]
        spare = numbered(1)
        await gates.queue(spare)
        gates.gate = gates.another(gates.database)
        assert await gates.run()
        answer = await explain(gates, mine)
        assert answer.reason == "workers_full"
        assert mail.work not in [holder.work for holder in answer.holders]
        assert theirs.work in [holder.work for holder in answer.holders]


class TestEstimatedStart:
    async def test_a_limit_of_zero_has_no_estimate(self, gates, clock):
        await gates.worker("etl")
        await record_run(gates, clock, "etl", 10)
        running, mine = numbered(1), numbered(2)
        await gates.queue(running)
        await gates.drain()
        await gates.queue(mine)
        await gates.tell(GroupChanged(group="etl", version=1, max_active=0))
        answer = await explain(gates, mine)
        assert (answer.reason, answer.estimated_start) == ("group_cap", None)
        assert "1 of 0 active in group 'etl'" in answer.text

    async def test_a_limit_that_was_lowered_has_to_be_reached_first(self, gates, clock):
        await gates.worker("etl")
        await record_run(gates, clock, "etl", 10)
        first, second, mine = numbered(1), numbered(2), numbered(3)
        await gates.queue(first)
        await gates.drain()
        clock.at = START + 5 * SECOND
        await gates.queue(second)
        await gates.drain()
        await gates.queue(mine)
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        answer = await explain(gates, mine)
        assert answer.estimated_start == START + 15 * SECOND

    async def test_each_holder_takes_as_long_as_its_own_job(self, gates, clock):
        await gates.worker("etl", "mail")
        await record_run(gates, clock, "mail", 3600)
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        mail, mine = numbered(1, job="mail"), numbered(2)
        await gates.queue(mail, mine)
        await gates.drain()
        answer = await explain(gates, mine)
        assert answer.estimated_start == START + HOUR
        assert "1 recent run of job 'mail' took a median of 3600.0 s, 0 before it" in answer.text

    async def test_the_last_gate_to_open_counts_and_all_are_named(self, gates, clock):
        await gates.worker("etl")
        await record_run(gates, clock, "etl", 10)
        await gates.tell(
            GroupChanged(group="etl", version=1, max_active=1),
            JobChanged(job="etl", version=1, rate=Rate(count=1, period_seconds=3600)),
        )
        running, mine = numbered(1), numbered(2)
        await gates.queue(running, mine)
        await gates.drain()
        answer = await explain(gates, mine)
        assert answer.reason == "group_cap"
        assert answer.estimated_start == START + HOUR
        assert "waits since 2027-03-01 11:58:23 UTC: 1 of 1 active in group 'etl'." in answer.text
        assert (
            "Also closed: job 'etl' starts at most 1/hour, 0 left until 2027-03-01 13:00:00"
            in answer.text
        )

    async def test_a_rate_frees_its_places_one_by_one(self, gates, clock):
        await gates.worker("etl")
        await gates.tell(
            GroupChanged(group="etl", version=1, rate=Rate(count=2, period_seconds=60))
        )
        for number in range(2):
            clock.at = START + number * 20 * SECOND
            await gates.queue(numbered(number))
            assert await gates.drain() == 1
            await gates.end()
        works = [numbered(10 + number) for number in range(4)]
        await gates.queue(*works)
        starts = [(await explain(gates, each)).estimated_start for each in works]
        assert starts == [START + seconds * SECOND for seconds in (60, 80, 120, 140)]

    async def test_a_start_after_the_expiry_is_named(self, gates, clock):
        await gates.worker("etl")
        await record_run(gates, clock, "etl", 10)
        await gates.tell(GroupChanged(group="etl", version=1, max_active=1))
        running, mine = numbered(1), numbered(2, start_by=START + 5 * SECOND)
        await gates.queue(running, mine)
        await gates.drain()
        answer = await explain(gates, mine)
        assert answer.estimated_start is None
        assert "it expires before its turn comes, about 2027-03-01 12:00:10 UTC" in answer.text
        clock.at = START + 5 * SECOND
        answer = await explain(gates, mine)
        assert (answer.reason, answer.ahead, answer.estimated_start) == ("start_by", None, None)
        assert (
            "it had to begin by 2027-03-01 12:00:05 UTC, and is settled as expired" in answer.text
        )
        assert "It expires at" not in answer.text
