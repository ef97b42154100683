"""Settings: one struct, every problem at once."""

import pytest
from headway_service_kit.settings import InvalidSettings, read
from msgspec import Struct


class Example(Struct, frozen=True, kw_only=True):
    database_url: str
    nats_url: str
    slots: int = 10
    orphan_timeout_seconds: float = 60.0


def test_flags_win_over_the_environment_and_that_over_defaults():
    environment = {"HEADWAY_DATABASE_URL": "a", "HEADWAY_NATS_URL": "b", "HEADWAY_SLOTS": "3"}
    assert read(Example, environment, nats_url="c", slots=None) == Example(
        database_url="a", nats_url="c", slots=3
    )


def test_all_problems_are_told_together():
    with pytest.raises(InvalidSettings) as caught:
        read(Example, {"HEADWAY_SLOTS": "many", "HEADWAY_NATS_URL": "b"})
    assert "HEADWAY_DATABASE_URL is not set" in str(caught.value)
    assert "HEADWAY_SLOTS='many'" in str(caught.value)
