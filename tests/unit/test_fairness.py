"""Fair shares of a cycle, and dependencies between manifests."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_decisions.declaring.lookup import find_cycles
from headway_decisions.firing.fairness import DueGroup, cycles_ahead, in_cycles, share
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2027, 3, 1, tzinfo=UTC)


def group(name: str, due: int, priority: int = 0, waits: int = 0) -> DueGroup:
    since = NOW - timedelta(minutes=waits)
    return DueGroup(name=name, priority=priority, due=due, since=since)


SMALL = {f"small-{number}": 1 for number in range(3)}


@pytest.mark.parametrize(
    ("groups", "limit", "shares"),
    [
        ([], 200, {}),
        ([group("a", 5)], 200, {"a": 5}),
        ([group("cache", 5000), group("delta", 15)], 200, {"cache": 185, "delta": 15}),
        ([group("a", 500), group("b", 500)], 201, {"a": 101, "b": 100}),
        ([group("a", 500), group("b", 500, 9)], 201, {"b": 101, "a": 100}),
        ([group("a", 9), group("b", 9, 1), group("c", 9, waits=1)], 2, {"b": 1, "c": 1}),
        ([group("big", 200), *(group(f"small-{n}", 1, waits=1) for n in range(3))], 3, SMALL),
        (
            [group("low", 500), group("mid", 40, 1), group("high", 500, 2)],
            300,
            {"high": 160, "mid": 40, "low": 100},
        ),
    ],
)
def test_each_group_has_its_share_and_the_rest_goes_to_the_higher_ones(groups, limit, shares):
    assert share(groups, limit) == shares


@given(
    st.lists(st.builds(group, st.uuids().map(str), st.integers(1, 900), st.integers(0, 31))),
    st.integers(1, 500),
)
def test_no_capacity_is_wasted_and_every_group_gets_its_base_share(groups, limit):
    shares = share(groups, limit)
    assert sum(shares.values()) == min(limit, sum(group.due for group in groups))
    base = limit // len(groups) if groups else 0
    for group in groups:
        assert min(base, group.due) <= shares.get(group.name, 0) <= group.due
    if len(groups) > limit:
        assert set(shares.values()) == {1}, "nobody has two while another has none"


@pytest.mark.parametrize(
    ("due", "cycles"), [(201, 1), (1599, 1), (1600, 2), (8000, 10), (16_000, 20), (10**6, 20)]
)
def test_the_more_is_due_the_more_cycles_are_shared_at_once(due, cycles):
    assert cycles_ahead(due, 200) == cycles


def test_every_cycle_has_a_part_of_each_group_in_its_order():
    shared = {"big": list("abcdefgh"), "small": list("xyz")}
    assert in_cycles(shared, 4) == [["a", "x", "b", "c"], ["y", "d", "e", "f"], ["z", "g", "h"]]


@given(
    st.lists(st.lists(st.integers(), min_size=1), max_size=8).map(
        lambda all_: dict(enumerate(all_))
    ),
    st.integers(1, 9),
)
def test_cycles_hold_all_that_was_shared_once(shared, limit):
    shared = {
        name: [(name, place) for place, _ in enumerate(members)] for name, members in shared.items()
    }
    cycles = in_cycles(shared, limit)
    decided = [entry for cycle in cycles for entry in cycle]
    assert all(len(cycle) == limit for cycle in cycles[:-1])
    for name, entries in shared.items():
        assert [entry for entry in decided if entry[0] == name] == entries, "in its order"
    assert len(decided) == sum(map(len, shared.values()))


@pytest.mark.parametrize(
    ("parents", "cycles"),
    [
        ({"a": None, "b": "a", "c": "b"}, []),
        ({"a": "elsewhere"}, []),
        ({"a": "a"}, [["a", "a"]]),
        ({"a": "c", "b": "a", "c": "b", "d": "c"}, [["a", "c", "b", "a"]]),
        ({"a": "b", "b": "a", "x": "y", "y": "x"}, [["a", "b", "a"], ["x", "y", "x"]]),
    ],
)
def test_cycles_are_found_with_their_path(parents, cycles):
    assert find_cycles(parents) == cycles
