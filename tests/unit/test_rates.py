"""Rates: never more than the limit in any period, and hardly less."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_contract.fields import Rate
from headway_decisions.capacity import rates
from hypothesis import given
from hypothesis import strategies as st

START = datetime(2027, 3, 28, 1, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "count", "seconds", "again"),
    [
        ("100/minute", 100, 60, "100/minute"),
        ("5/second", 5, 1, "5/second"),
        ("1/hour", 1, 3600, "1/hour"),
        ("10 / day", 10, 86_400, "10/day"),
        ("5/10 seconds", 5, 10, "5/10 seconds"),
        ("5 per 90 seconds", 5, 90, "5/90 seconds"),
        ("3/120 seconds", 3, 120, "3/2 minutes"),
        ("1/0.5 seconds", 1, 0.5, "1/0.5 seconds"),
    ],
)
def test_rates_are_read_and_written(text, count, seconds, again):
    rate = rates.parse_rate(text)
    assert rate == Rate(count=count, period_seconds=seconds)
    assert rates.rate_in_words(rate) == again
    assert rates.parse_rate(again) == rate


@pytest.mark.parametrize(
    "text",
    ["", "100", "0/minute", "-1/minute", "1/fortnight", "1/0 seconds", "2000000/day", "1/400 days"],
)
def test_an_invalid_rate_is_reported_with_an_example(text):
    with pytest.raises(ValueError, match="write it like '100/minute'"):
        rates.parse_rate(text)


def test_it_frees_when_the_oldest_is_a_period_old():
    rate = Rate(count=2, period_seconds=60)
    begun = rates.begin(rate, [], 1, START)
    begun = rates.begin(rate, begun, 1, START + timedelta(seconds=30))
    now = START + timedelta(seconds=31)
    assert rates.room(rate, begun, now) == 0
    assert rates.frees_at(rate, begun, now) == START + timedelta(seconds=60)
    assert rates.room(rate, begun, START + timedelta(seconds=60)) == 1
    assert rates.frees_at(rate, begun, START + timedelta(seconds=60)) is None


def test_a_rate_that_was_lowered_frees_when_enough_has_passed():
    begun = rates.begin(Rate(count=10, period_seconds=60), [], 5, START)
    begun = rates.begin(Rate(count=10, period_seconds=60), begun, 5, START + timedelta(seconds=20))
    lowered = Rate(count=3, period_seconds=60)
    assert rates.frees_at(lowered, begun, START + timedelta(seconds=21)) == START + timedelta(
        seconds=80
    )


def test_a_clock_that_is_set_back_frees_nothing_early():
    rate = Rate(count=2, period_seconds=60)
    begun = rates.begin(rate, [], 2, START)
    earlier = START - timedelta(seconds=30)
    assert rates.room(rate, begun, earlier) == 0
    assert rates.frees_at(rate, begun, earlier) == earlier + timedelta(seconds=60)


@given(
    st.integers(1, 8),
    st.sampled_from([1.0, 10.0, 60.0]),
    st.lists(st.tuples(st.floats(0, 12), st.integers(0, 5)), max_size=60),
)
def test_no_stretch_of_a_period_sees_more_than_the_rate(count, period, wishes):
    rate = Rate(count=count, period_seconds=period)
    now, begun, log = START, [], []
    for wait, wish in wishes:
        now += timedelta(seconds=wait)
        admitted = min(wish, rates.room(rate, begun, now))
        begun = rates.begin(rate, begun, admitted, now)
        log += [now] * admitted
        frees_at = rates.frees_at(rate, begun, now)
        assert (frees_at is None) == (rates.room(rate, begun, now) > 0)
        if frees_at is not None:
            assert now < frees_at
            assert rates.room(rate, begun, frees_at) > 0
    length = timedelta(seconds=period)
    for start in log:
        assert sum(start <= time < start + length for time in log) <= count
    assert len(begun) <= 62
    # A use is remembered too long by at most a sixtieth of the period.
    later = now + length * (1 + 1 / 60)
    assert rates.room(rate, begun, later) == count


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(0, 59), st.integers(1, 6)), max_size=6),
    st.integers(0, 12),
)
def test_a_turn_is_when_all_have_begun_that_come_before(count, before, ahead):
    rate = Rate(count=count, period_seconds=60)
    # Separate bundles, more than the rate allows if it was lowered meanwhile.
    began = [
        rates.Bundle(first_at=at, last_at=at, count=number)
        for seconds, number in before
        if (at := START - timedelta(seconds=seconds))
    ]
    begun, now = list(began), START
    for _ in range(ahead + 1):
        now = rates.frees_at(rate, begun, now) or now
        # So far apart that none is remembered longer than needed.
        begun = [*begun, rates.Bundle(first_at=now, last_at=now, count=1)]
    assert rates.turn(rate, began, ahead, START) == now
