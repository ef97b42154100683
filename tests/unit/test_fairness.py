"""How a cycle shares its room, and who depends on whom."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_decisions.fairness import DueGroup, share
from headway_decisions.lineage import find_cycles
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
def test_no_room_is_wasted_and_nobody_with_a_claim_gets_nothing(groups, limit):
    shares = share(groups, limit)
    assert sum(shares.values()) == min(limit, sum(one.due for one in groups))
    base = limit // len(groups) if groups else 0
    for one in groups:
        assert min(base, one.due) <= shares.get(one.name, 0) <= one.due
    if len(groups) > limit:
        assert set(shares.values()) == {1}, "nobody has two while another has none"


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
