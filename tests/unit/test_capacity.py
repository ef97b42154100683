"""What the gate lets through."""

from uuid import UUID

import pytest
from headway_decisions.capacity import (
    MARGIN,
    Admitted,
    Candidate,
    GroupLimit,
    Held,
    Load,
    Worker,
    admit,
)
from hypothesis import given
from hypothesis import strategies as st

FLEET = [Worker(jobs=("etl", "mail"), slots=100)]


def wants(count: int, *, group: str = "g", job: str = "etl", start: int = 0) -> list[Candidate]:
    return [Candidate(work=UUID(int=start + n), group=group, job=job) for n in range(count)]


def reasons(verdicts) -> list[str]:
    return [verdict.reason if isinstance(verdict, Held) else "admitted" for verdict in verdicts]


def test_the_global_cap():
    verdicts = admit(
        wants(4), load=Load(by_group={"other": 1}), max_active=3, limits={}, fleet=FLEET
    )
    assert reasons(verdicts) == ["admitted", "admitted", "global_cap", "global_cap"]


def test_a_full_group_does_not_hold_others():
    candidates = [*wants(2, group="a"), *wants(2, group="b", start=10)]
    verdicts = admit(
        candidates,
        load=Load(by_group={"a": 1}),
        max_active=100,
        limits={"a": GroupLimit(max_active=2), "b": GroupLimit()},
        fleet=FLEET,
    )
    assert reasons(verdicts) == ["admitted", "group_cap", "admitted", "admitted"]


def test_a_cap_lowered_below_what_runs_admits_nothing():
    verdicts = admit(
        wants(1),
        load=Load(by_group={"g": 5}),
        max_active=100,
        limits={"g": GroupLimit(max_active=2)},
        fleet=FLEET,
    )
    assert reasons(verdicts) == ["group_cap"]


@pytest.mark.parametrize(
    ("limits", "job", "reason"),
    [
        ({"g": GroupLimit(enabled=False)}, "etl", "group_disabled"),
        ({}, "nobody-serves-this", "no_worker"),
        ({"g": GroupLimit(max_active=0)}, "etl", "group_cap"),
    ],
)
def test_reasons(limits, job, reason):
    verdicts = admit(wants(1, job=job), load=Load(), max_active=100, limits=limits, fleet=FLEET)
    assert verdicts == [Held(UUID(int=0), reason)]


def test_workers_get_their_slots_and_a_margin_over_all_their_jobs():
    fleet = [Worker(jobs=("etl", "mail"), slots=2)]
    candidates = [*wants(3, job="etl"), *wants(3, job="mail", start=10)]
    verdicts = admit(
        candidates,
        load=Load(by_group={"g": 1}, on_fleet_by_job={"mail": 1}),
        max_active=100,
        limits={},
        fleet=fleet,
    )
    assert reasons(verdicts).count("admitted") == 2 + MARGIN - 1
    assert reasons(verdicts)[-1] == "workers_full"


names = st.sampled_from(["a", "b", "c"])


@given(
    st.lists(st.tuples(names, st.sampled_from(["etl", "mail", "none"])), max_size=30),
    st.dictionaries(names, st.integers(0, 5)),
    st.integers(0, 20),
    st.dictionaries(names, st.one_of(st.none(), st.integers(0, 5))),
)
def test_no_limit_is_ever_exceeded_and_everybody_gets_an_answer(wanted, running, cap, group_caps):
    candidates = [
        Candidate(work=UUID(int=n), group=group, job=job) for n, (group, job) in enumerate(wanted)
    ]
    limits = {name: GroupLimit(max_active=limit) for name, limit in group_caps.items()}
    verdicts = admit(
        candidates, load=Load(by_group=running), max_active=cap, limits=limits, fleet=FLEET
    )
    assert [verdict.work for verdict in verdicts] == [one.work for one in candidates]
    admitted = {verdict.work for verdict in verdicts if isinstance(verdict, Admitted)}
    active = dict(running)
    for one in candidates:
        if one.work in admitted:
            active[one.group] = active.get(one.group, 0) + 1
    if admitted:
        assert sum(active.values()) <= cap
    for name, limit in group_caps.items():
        if limit is not None and active.get(name, 0) > running.get(name, 0):
            assert active[name] <= limit
