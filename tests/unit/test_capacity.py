"""Admission by the gate."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import ClassVar
from uuid import UUID

import pytest
from headway_contract.fields import Rate
from headway_decisions.capacity.capacity import (
    MARGIN,
    Admitted,
    Candidate,
    GroupLimit,
    Held,
    JobLimit,
    Limits,
    Load,
    Room,
    admit,
)
from headway_decisions.capacity.packing import MOST_BYTES, MOST_RUNS, lease_size, spread
from headway_decisions.capacity.rates import Bundle
from headway_decisions.capacity.slots import Worker
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2027, 3, 28, 1, 15, tzinfo=UTC)
FLEET = [Worker(jobs=("etl", "mail"), slots=100)]


def wants(count: int, *, start: int = 0, **fields) -> list[Candidate]:
    stated = {"group": "g", "job": "etl", **fields}
    return [Candidate(work=UUID(int=start + n), **stated) for n in range(count)]


def load_of(active, leases=None) -> Load:
    """Return the load of leases with one group each; `active` counts them by group and job."""
    groups: Counter[str] = Counter()
    jobs: Counter[str] = Counter()
    for (group, job), number in active.items():
        groups[group] += number
        jobs[job] += number
    return Load(groups=groups, jobs=jobs, leases_on_fleet=leases or {})


def answers(
    candidates, *, active=None, leases=None, max_active=100, fleet=FLEET, more=False, **limits
):
    load = load_of(active or {}, leases)
    room = Room(Limits(max_active=max_active, **limits), load, fleet, now=NOW)
    return admit(candidates, room, more=more)


def reasons(verdicts) -> list[str]:
    return [verdict.reason if isinstance(verdict, Held) else "admitted" for verdict in verdicts]


def test_the_global_cap():
    verdicts = answers(wants(4), active={("other", "etl"): 1}, max_active=3)
    assert reasons(verdicts) == ["admitted", "admitted", "global_cap", "global_cap"]


def test_jobs_that_do_not_count_globally_ignore_the_global_limit():
    jobs = {"etl": JobLimit(counts_globally=False)}
    candidates = [*wants(2), *wants(2, job="mail", start=10)]
    verdicts = answers(candidates, active={("g", "etl"): 7}, max_active=1, jobs=jobs)
    assert reasons(verdicts) == ["admitted", "admitted", "admitted", "global_cap"]


def test_a_full_group_does_not_hold_others():
    candidates = [*wants(2, group="a"), *wants(2, group="b", start=10)]
    verdicts = answers(
        candidates, active={("a", "mail"): 1}, groups={"a": GroupLimit(max_active=2)}
    )
    assert reasons(verdicts) == ["admitted", "group_cap", "admitted", "admitted"]


def test_a_full_job_does_not_hold_others_and_counts_over_all_groups():
    candidates = [*wants(2, group="a"), *wants(1, job="mail", start=10)]
    verdicts = answers(candidates, active={("b", "etl"): 1}, jobs={"etl": JobLimit(max_active=2)})
    assert reasons(verdicts) == ["admitted", "job_cap", "admitted"]


@pytest.mark.parametrize(
    "limits",
    [
        {"groups": {"g": GroupLimit(max_active=2)}},
        {"jobs": {"etl": JobLimit(max_active=2)}},
        {"max_active": 2},
    ],
)
def test_a_limit_lowered_below_the_running_number_admits_nothing(limits):
    verdicts = answers(wants(1), active={("g", "etl"): 5}, **limits)
    assert reasons(verdicts)[0].endswith("_cap")


def test_a_key_admits_up_to_its_limit():
    candidates = [
        *wants(1, key="customer:1", key_active=1),
        *wants(2, key="customer:2", start=10),
        *wants(3, key="customer:3", key_limit=2, start=20),
        *wants(1, start=30),
    ]
    assert reasons(answers(candidates)) == [
        "key",
        "admitted",
        "key",
        "admitted",
        "admitted",
        "key",
        "admitted",
    ]


@pytest.mark.parametrize("kind", ["group", "job"])
def test_a_rate_admits_its_remainder(kind):
    begun = (Bundle(first_at=NOW, last_at=NOW, count=3),)
    rate = Rate(count=5, period_seconds=60)
    limits = (
        {"groups": {"g": GroupLimit(rate=rate, begun=begun)}}
        if kind == "group"
        else {"jobs": {"etl": JobLimit(rate=rate, begun=begun)}}
    )
    room = Room(Limits(max_active=100, **limits), Load(), FLEET, now=NOW)
    verdicts = admit([*wants(3), *wants(1, group="h", job="mail", start=10)], room)
    assert reasons(verdicts) == ["admitted", "admitted", "rate", "admitted"]
    [use] = room.rate_uses()
    assert (use.kind, sum(start.count for start in use.begun)) == (kind, 5)
    assert use.frees_at == room.rates_free_at() == NOW + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("limits", "fields", "reason"),
    [
        ({"groups": {"g": GroupLimit(enabled=False)}}, {}, "group_disabled"),
        (
            {"groups": {"g": GroupLimit(enabled=False)}},
            {"manifest_disabled": True},
            "group_disabled",
        ),
        ({}, {"manifest_disabled": True}, "manifest_disabled"),
        ({"max_active": 0}, {"manifest_disabled": True}, "manifest_disabled"),
        ({}, {"job": "nobody-serves-this"}, "no_worker"),
        ({"groups": {"g": GroupLimit(max_active=0)}}, {}, "group_cap"),
        ({"jobs": {"etl": JobLimit(max_active=0)}}, {}, "job_cap"),
    ],
)
def test_reasons(limits, fields, reason):
    assert answers(wants(1, **fields), **limits) == [Held(UUID(int=0), reason)]


def test_workers_get_their_slots_and_a_margin_over_all_their_jobs():
    fleet = [Worker(jobs=("etl", "mail"), slots=2)]
    candidates = [*wants(3, job="etl"), *wants(3, job="mail", start=10)]
    verdicts = answers(candidates, active={("g", "mail"): 1}, leases={"mail": 1}, fleet=fleet)
    assert reasons(verdicts).count("admitted") == 2 + MARGIN - 1
    assert reasons(verdicts)[-1] == "workers_full"


class TestSpares:
    """Spare orders, ready for a slot that is still in use."""

    BUSY: ClassVar = Worker(jobs=("etl",), slots=1, held={"etl": 1})
    IDLE: ClassVar = Worker(jobs=("mail",), slots=2)

    def answers(self, candidates, *, fleet=(BUSY,), **fields):
        return reasons(
            answers(candidates, active={("g", "etl"): 1}, leases={"etl": 1}, fleet=fleet, **fields)
        )

    @pytest.mark.parametrize(
        ("limits", "verdict"),
        [
            ({"max_active": 2}, "workers_full"),
            ({"max_active": 3}, "admitted"),
            ({"groups": {"g": GroupLimit(max_active=2)}}, "workers_full"),
            ({"groups": {"g": GroupLimit(max_active=3)}}, "admitted"),
            ({"jobs": {"etl": JobLimit(max_active=2)}}, "workers_full"),
            ({"jobs": {"etl": JobLimit(max_active=3)}}, "admitted"),
            ({"max_active": 1, "jobs": {"etl": JobLimit(counts_globally=False)}}, "admitted"),
        ],
    )
    def test_they_take_no_limits_last_slot(self, limits, verdict):
        assert self.answers(wants(1), **limits) == [verdict]

    @pytest.mark.parametrize(("cap", "verdict"), [(3, "workers_full"), (4, "admitted")])
    def test_they_leave_as_much_as_idle_slots_could_use(self, cap, verdict):
        fleet = [self.BUSY, self.IDLE]
        candidates = [*wants(1), *wants(2, job="mail", start=10)]
        verdicts = self.answers(candidates, fleet=fleet, max_active=cap)
        assert verdicts == [verdict, "admitted", "admitted"]

    def test_a_spare_order_takes_no_slot_of_other_jobs(self):
        verdicts = answers(
            wants(2, job="mail"),
            active={("g", "etl"): 2},
            leases={"etl": 2},
            fleet=[self.BUSY, self.IDLE],
            max_active=4,
        )
        assert reasons(verdicts) == ["admitted", "admitted"]

    def test_work_with_a_key_has_none(self):
        assert self.answers(wants(1, key="k")) == ["workers_full"]
        assert self.answers(wants(1, key="k", key_active=1)) == ["key"]
        fleet = [self.BUSY, Worker(jobs=("etl",), slots=1)]
        verdicts = self.answers([*wants(1, key="k"), *wants(1, key="l", start=1)], fleet=fleet)
        assert verdicts == ["admitted", "workers_full"]

    def test_runs_that_share_one_take_no_room_but_that_of_other_groups(self):
        batches = {"etl": JobLimit(batch=5)}
        assert self.answers(wants(4), jobs=batches, max_active=4) == ["admitted"] * 4
        full = {"h": GroupLimit(max_active=1)}
        shared = [*wants(1), *wants(1, group="h", start=1), *wants(1, key="k", start=2)]
        verdicts = self.answers(shared, jobs=batches, groups=full)
        assert verdicts == ["admitted", "workers_full", "workers_full"]

    def test_the_rest_of_a_lane_with_a_spare_order_waits_for_a_slot(self):
        load = load_of({("g", "etl"): 1}, {"etl": 1})
        room = Room(Limits(max_active=9), load, [self.BUSY, self.IDLE], now=NOW)
        assert (room.closed("g", "etl"), room.waits_for("g", "etl")) == (None, "workers_full")
        assert room.waits_for("g", "mail") is None
        assert room.waits_for("g", "none") == "no_worker"


def test_a_worker_that_runs_few_of_a_job_is_not_given_more():
    fleet = [Worker(jobs=("etl", "mail"), slots=10, concurrency={"etl": 2})]
    verdicts = answers([*wants(5, job="etl"), *wants(5, job="mail", start=10)], fleet=fleet)
    assert reasons(verdicts[:5]) == ["admitted"] * (2 + MARGIN) + ["workers_full"] * 2
    assert reasons(verdicts[5:]) == ["admitted"] * 5


class TestLeasesOfSeveralRuns:
    JOBS: ClassVar = {"etl": JobLimit(batch=3)}

    def leases(self, candidates, *, more=True, **stated) -> list[int]:
        """Return the lease of each candidate; by default more work waits, so leases are filled."""
        verdicts = answers(candidates, jobs=self.JOBS, more=more, **stated)
        return [verdict.lease if isinstance(verdict, Admitted) else -1 for verdict in verdicts]

    def test_runs_of_a_job_share_up_to_its_batch(self):
        assert self.leases(wants(7)) == [0, 0, 0, 1, 1, 1, 2]

    def test_other_jobs_and_other_ways_to_lose_contact_do_not_share(self):
        mixed = [
            *wants(2),
            *wants(1, job="mail", start=10),
            *wants(1, on_lost_contact="continue", start=20),
            *wants(1, start=30),
            *wants(1, job="mail", start=40),
        ]
        assert self.leases(mixed) == [0, 0, 1, 2, 0, 3]

    def test_exclusive_work_has_its_own_lease(self):
        mixed = [*wants(1), *wants(1, exclusive_lease=True, start=10), *wants(1, start=20)]
        assert self.leases(mixed) == [0, 1, 0]

    def test_a_lease_is_bounded_by_bytes(self):
        assert self.leases(wants(3, size=MOST_BYTES // 2)) == [0, 0, 1]
        assert self.leases(wants(2, size=2 * MOST_BYTES)) == [0, 1]

    def test_a_slot_takes_a_lease_however_many_runs_it_has(self):
        fleet = [Worker(jobs=("etl",), slots=1)]
        assert self.leases(wants(7), fleet=fleet) == [0, 0, 0, 1, 1, 1, -1]

    @pytest.mark.parametrize(
        ("waiting", "free", "runs"),
        [(10, 10, 1), (10, 4, 3), (10, 5, 2), (11, 5, 3), (1, 5, 1), (99, 5, 5), (3, 0, 5)],
    )
    def test_a_lease_takes_its_share_of_the_waiting_work(self, waiting, free, runs):
        assert spread(5, waiting=waiting, slots=free) == runs

    @pytest.mark.parametrize(
        ("stated", "seconds", "runs"),
        [
            (None, None, 1),
            (20, None, 20),
            (None, 0.0, MOST_RUNS),
            (None, 0.0001, MOST_RUNS),
            (None, 0.01, 7),
            (5, 0.01, 5),
            (20, 0.01, 7),
            (200, 0.0001, 200),
            (1, 0.0001, 1),
            (None, 0.075, 1),
            (None, 3600.0, 1),
            (20, 3600.0, 1),
        ],
    )
    def test_a_lease_has_as_many_runs_as_fit_into_its_time(self, stated, seconds, runs):
        assert lease_size(stated, seconds) == runs

    def test_no_slot_stays_free_while_others_have_several(self):
        fleet = [Worker(jobs=("etl", "mail"), slots=2), Worker(jobs=("etl",), slots=2)]
        assert self.leases(wants(4), more=False, fleet=fleet) == [0, 1, 2, 3]
        assert self.leases(wants(6), more=False, fleet=fleet) == [0, 0, 1, 1, 2, 2]
        busy = {"etl": 1, "mail": 1}
        assert self.leases(wants(4), more=False, fleet=fleet, leases=busy) == [0, 0, 1, 1]
        full = {"etl": 4}
        assert self.leases(wants(4), more=False, fleet=fleet, leases=full) == [0, 0, 0, 1]

    def test_a_slot_that_runs_fewer_of_a_job_counts_as_such(self):
        fleet = [Worker(jobs=("etl",), slots=10, concurrency={"etl": 2})]
        assert self.leases(wants(4), more=False, fleet=fleet) == [0, 0, 1, 1]

    def test_waiting_work_spreads_over_as_many_slots_as_its_limits_allow(self):
        one, two = GroupLimit(max_active=1), GroupLimit(max_active=2)
        assert self.leases(wants(3), more=False, groups={"g": one}) == [0, 0, 0]
        assert self.leases(wants(4), more=False, groups={"g": two}) == [0, 0, 1, 1]
        assert self.leases(wants(4), more=False, max_active=2) == [0, 0, 1, 1]

    def test_a_lease_counts_once_against_every_limit(self):
        assert self.leases(wants(7), max_active=2) == [0, 0, 0, 1, 1, 1, -1]
        group = {"g": GroupLimit(max_active=1)}
        assert self.leases(wants(4), groups=group) == [0, 0, 0, -1]
        mixed = [*wants(1), *wants(1, group="h", start=1), *wants(1, group="h", start=2)]
        full = {"h": GroupLimit(max_active=0)}
        assert self.leases(mixed, groups=full) == [0, -1, -1]
        assert self.leases(mixed, groups={"h": GroupLimit(max_active=1)}) == [0, 0, 0]

    def test_a_lease_counts_once_against_a_key(self):
        assert self.leases(wants(4, key="k")) == [0, 0, 0, -1]
        assert self.leases(wants(4, key="k", key_limit=2)) == [0, 0, 0, 1]
        assert self.leases(wants(2, key="k", key_active=1)) == [-1, -1]

    def test_rates_count_runs(self):
        rate = Rate(count=2, period_seconds=60)
        assert self.leases(wants(3), groups={"g": GroupLimit(rate=rate)}) == [0, 0, -1]


names = st.sampled_from(["a", "b", "c"])
job_names = st.sampled_from(["etl", "mail", "none"])
caps = st.one_of(st.none(), st.integers(0, 5))
some_rates = st.one_of(
    st.none(), st.builds(Rate, count=st.integers(1, 5), period_seconds=st.just(60.0))
)
keys = st.one_of(st.none(), st.sampled_from(["x", "y"]))


@given(
    st.lists(st.tuples(names, job_names, keys, st.booleans(), st.booleans()), max_size=40),
    st.dictionaries(st.tuples(names, job_names), st.integers(0, 5)),
    st.integers(0, 20),
    st.dictionaries(
        names, st.builds(GroupLimit, max_active=caps, rate=some_rates, enabled=st.booleans())
    ),
    st.dictionaries(
        job_names,
        st.builds(
            JobLimit,
            max_active=caps,
            rate=some_rates,
            counts_globally=st.booleans(),
            batch=st.none() | st.integers(1, 4),
            seconds=st.none() | st.sampled_from([0.02, 0.03, 1.0]),
        ),
    ),
    st.dictionaries(st.sampled_from(["x", "y"]), st.integers(0, 2)),
    st.integers(0, 8),
)
def test_no_limit_is_ever_exceeded_and_everybody_gets_an_answer(
    wanted, running, cap, groups, jobs, keyed, slots
):
    candidates = [
        Candidate(
            work=UUID(int=n),
            group=group,
            job=job,
            key=key,
            key_limit=2,
            key_active=keyed.get(key, 0),
            manifest_disabled=disabled,
            exclusive_lease=exclusive_lease,
        )
        for n, (group, job, key, disabled, exclusive_lease) in enumerate(wanted)
    ]
    limits = Limits(max_active=cap, groups=groups, jobs=jobs)
    fleet = [Worker(jobs=("etl", "mail"), slots=slots)]
    room = Room(limits, load_of(running), fleet, now=NOW)
    verdicts = admit(candidates, room)
    assert [verdict.work for verdict in verdicts] == [candidate.work for candidate in candidates]
    leases = {verdict.work: verdict.lease for verdict in verdicts if isinstance(verdict, Admitted)}
    admitted = [candidate for candidate in candidates if candidate.work in leases]

    def fits(limit, before, more):
        return limit is None or more == 0 or before + more <= limit

    def leases_of(among):
        return len({leases[candidate.work] for candidate in among})

    counted = [candidate for candidate in admitted if limits.job(candidate.job).counts_globally]
    before = sum(n for (_, job), n in running.items() if limits.job(job).counts_globally)
    assert fits(cap, before, leases_of(counted))
    for name, limit in groups.items():
        more = [candidate for candidate in admitted if candidate.group == name]
        used = sum(n for (g, _), n in running.items() if g == name)
        assert fits(limit.max_active, used, leases_of(more))
        assert fits(limit.rate and limit.rate.count, 0, len(more))
        assert limit.enabled or not more
    for name, limit in jobs.items():
        more = [candidate for candidate in admitted if candidate.job == name]
        used = sum(n for (_, j), n in running.items() if j == name)
        assert fits(limit.max_active, used, leases_of(more))
        assert fits(limit.rate and limit.rate.count, 0, len(more))
    for key in ("x", "y"):
        more = [candidate for candidate in admitted if candidate.key == key]
        assert fits(2, keyed.get(key, 0), leases_of(more))
    assert not any(candidate.manifest_disabled for candidate in admitted)
    assert len(set(leases.values())) <= slots + MARGIN
    for lease in set(leases.values()):
        sharing = [candidate for candidate in admitted if leases[candidate.work] == lease]
        assert len({candidate.job for candidate in sharing}) == 1
        assert len(sharing) <= limits.job(sharing[0].job).lease_size
        assert len(sharing) == 1 or not any(candidate.exclusive_lease for candidate in sharing)


@given(
    st.dictionaries(st.tuples(names, job_names), st.integers(0, 5)),
    st.integers(0, 20),
    st.dictionaries(names, st.builds(GroupLimit, max_active=caps, enabled=st.booleans())),
    st.dictionaries(job_names, st.builds(JobLimit, max_active=caps, counts_globally=st.booleans())),
    names,
    job_names,
)
def test_a_lane_has_room_exactly_if_its_first_candidate_would_be_admitted(
    running, cap, groups, jobs, group, job
):
    """The database query selects the work that the rules admit."""
    room = Room(Limits(max_active=cap, groups=groups, jobs=jobs), load_of(running), FLEET, now=NOW)
    limited = room.groups(most=10).get(group)
    open_group = limited is None or min(limited.leases, limited.runs) > 0
    open_job = job in room.jobs(most=10)
    [verdict] = admit(wants(1, group=group, job=job), room)
    assert (open_group and open_job) == isinstance(verdict, Admitted)
