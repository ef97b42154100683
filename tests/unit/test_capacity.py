"""Admission by the gate."""

from datetime import timedelta
from typing import ClassVar
from uuid import UUID

import pytest
from headway_contract.fields import Rate
from headway_decisions.capacity.capacity import MARGIN, Admitted, Candidate, Held, Load, Room, admit
from headway_decisions.capacity.limits import GroupLimit, JobLimit, Limits
from headway_decisions.capacity.rates import Bundle
from headway_decisions.capacity.slots import Worker
from hypothesis import given
from hypothesis import strategies as st
from support.admissions import FLEET, NOW, answers, load_of, wants


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
    [use] = room.rate_uses(NOW)
    assert (use.kind, sum(start.count for start in use.begun)) == (kind, 5)
    assert use.frees_at == room.rates_free_at(NOW) == NOW + timedelta(seconds=60)


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
