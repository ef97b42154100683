"""Reasons why work waits: the same gates as the gate's own, listed one by one."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_contract.fields import Rate
from headway_decisions.capacity.capacity import Load, Room
from headway_decisions.capacity.limits import GroupLimit, JobLimit, Limits
from headway_decisions.capacity.rates import Bundle
from headway_decisions.capacity.slots import Worker
from headway_decisions.capacity.waiting import Waiter, estimate_start, gates, rate_turn
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2027, 3, 28, 1, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)
names = st.sampled_from(["a", "b"])
job_names = st.sampled_from(["etl", "mail", "none"])
caps = st.one_of(st.none(), st.integers(0, 4))
begun = st.integers(0, 3).map(lambda count: (Bundle(first_at=NOW, last_at=NOW, count=count),))
some_rates = st.one_of(st.none(), st.just(Rate(count=2, period_seconds=60.0)))


def first_closed(found) -> str | None:
    return next((gate.gate for gate in found if not gate.open), None)


@given(
    st.dictionaries(names, st.integers(0, 4)),
    st.dictionaries(job_names, st.integers(0, 4)),
    st.dictionaries(job_names, st.integers(0, 6)),
    st.integers(0, 12),
    st.dictionaries(
        names,
        st.builds(GroupLimit, max_active=caps, enabled=st.booleans(), rate=some_rates, begun=begun),
    ),
    st.dictionaries(
        job_names,
        st.builds(
            JobLimit, max_active=caps, counts_globally=st.booleans(), rate=some_rates, begun=begun
        ),
    ),
    names,
    job_names,
    st.integers(0, 4),
)
def test_the_listed_gates_agree_with_the_gate(
    in_groups, of_jobs, leases, cap, groups, jobs, group, job, slots
):
    limits = Limits(max_active=cap, groups=groups, jobs=jobs)
    load = Load(groups=in_groups, jobs=of_jobs, leases_on_fleet=leases)
    fleet = [Worker(jobs=("etl", "mail"), slots=slots)]
    found = gates(Waiter(group=group, job=job, not_before=NOW), limits, load, fleet, now=NOW)
    assert first_closed(found) == Room(limits, load, fleet, now=NOW).closed(group, job)
    assert all(gate.text for gate in found)


@pytest.mark.parametrize(
    ("held", "text"), [(True, "is disabled or paused, and no user"), (False, "does not hold")]
)
def test_a_pause_is_not_reported_as_disabled(held, text):
    waiter = Waiter(group="g", job="etl", manifest="m", manifest_disabled=held, not_before=NOW)
    found = gates(waiter, Limits(max_active=1), Load(), [], now=NOW)
    [gate] = [gate for gate in found if gate.gate == "manifest_disabled"]
    assert (gate.open, text in gate.text) == (not held, True)


def test_numbers_are_reported():
    limits = Limits(
        max_active=10,
        groups={"g": GroupLimit(max_active=2)},
        jobs={"etl": JobLimit(rate=Rate(count=3, period_seconds=60))},
    )
    waiter = Waiter(
        group="g",
        job="etl",
        not_before=NOW + SECOND,
        manifest="m",
        manifest_disabled=True,
        key="k",
        key_active=1,
    )
    load = Load(groups={"g": 2}, jobs={"etl": 2}, leases_on_fleet={"etl": 2})
    found = gates(waiter, limits, load, [Worker(jobs=("etl",), slots=4)], now=NOW)
    assert [(gate.gate, gate.open, gate.used, gate.limit) for gate in found] == [
        ("group_disabled", True, None, None),
        ("manifest_disabled", False, None, None),
        ("not_before", False, None, None),
        ("no_worker", True, 1, None),
        ("global_cap", True, 2, 10),
        ("group_cap", False, 2, 2),
        ("job_cap", True, 2, None),
        ("rate", True, 0, 3),
        ("key", False, 1, 1),
        ("workers_full", True, 2, 5),
    ]
    assert found[2].opens_at == NOW + SECOND


@pytest.mark.parametrize("active", [0, 1])
def test_a_key_that_the_gate_keeps_is_closed_though_it_has_room(active):
    fleet = [Worker(jobs=("etl",), slots=4)]
    for kept in (False, True):
        waiter = Waiter(
            group="g",
            job="etl",
            not_before=NOW,
            key="k",
            key_limit=2,
            key_active=active,
            key_kept=kept,
        )
        found = gates(waiter, Limits(max_active=10), Load(), fleet, now=NOW)
        [key] = [gate for gate in found if gate.gate == "key"]
        assert (key.open, key.used, key.limit) == (not kept, active, 2)
        assert ("other work with this key comes first" in key.text) == kept


@pytest.mark.parametrize(
    ("ahead", "running", "expected"),
    [
        (0, [0], 10),
        (0, [-4, -8], 2),
        (1, [-4, -8], 6),
        (2, [-4, -8], 12),
        (3, [-4, -8], 16),
        (0, [-60], 0),  # overdue
        (2, [-60], 20),
    ],
)
def test_a_start_is_estimated_from_running_and_earlier_work(ahead, running, expected):
    at = estimate_start(
        ends=[NOW + (number + 10) * SECOND for number in running],
        ahead=[10 * SECOND] * ahead,
        now=NOW,
    )
    assert at == NOW + expected * SECOND


def test_a_turn_under_a_rate():
    rate = Rate(count=2, period_seconds=60)
    used_up = (Bundle(first_at=NOW, last_at=NOW, count=2),)
    limits = Limits(max_active=10, groups={"g": GroupLimit(rate=rate, begun=used_up)})
    turns = [rate_turn(("g", "etl"), limits, ahead=ahead, now=NOW) for ahead in range(4)]
    assert turns == [NOW + seconds * SECOND for seconds in (60, 60, 120, 120)]
    open_again = NOW + 60 * SECOND
    assert rate_turn(("g", "etl"), limits, ahead=0, now=open_again) is None
