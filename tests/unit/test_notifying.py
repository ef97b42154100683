"""Retries of notifications, and when they end."""

from datetime import UTC, datetime, timedelta

import pytest
from headway_decisions.retries.retries import after_failed_notification

CREATED = datetime(2027, 3, 1, tzinfo=UTC)


def verdict(*, attempts: int, age: float, spread: float = 0.0):
    return after_failed_notification(
        attempts=attempts,
        created_at=CREATED,
        now=CREATED + timedelta(seconds=age),
        first_pause=5.0,
        horizon=86_400.0,
        spread=spread,
    )


@pytest.mark.parametrize(
    ("attempts", "pause"), [(1, 5), (2, 10), (3, 20), (10, 2560), (11, 3600), (5000, 3600)]
)
def test_pauses_double_up_to_an_hour(attempts, pause):
    assert verdict(attempts=attempts, age=60) == CREATED + timedelta(seconds=60 + pause)


def test_chance_lengthens_a_pause_by_a_tenth_at_most():
    assert verdict(attempts=1, age=0, spread=1.0) == CREATED + timedelta(seconds=5.5)


def test_it_is_given_up_when_the_next_attempt_would_come_after_the_horizon():
    assert verdict(attempts=1, age=86_395) == CREATED + timedelta(days=1)
    assert verdict(attempts=1, age=86_396) is None
