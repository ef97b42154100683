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


class Secret(Struct, frozen=True):
    database_url: str


def test_a_setting_may_be_in_a_file(tmp_path):
    path = tmp_path / "url"
    path.write_text("postgresql://here\n")
    environment = {"HEADWAY_DATABASE_URL_FILE": str(path)}
    assert read(Secret, environment).database_url == "postgresql://here"
    environment["HEADWAY_DATABASE_URL"] = "postgresql://there"
    assert read(Secret, environment).database_url == "postgresql://there"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(
        InvalidSettings, match=r"HEADWAY_DATABASE_URL_FILE: .*nowhere.*No such file"
    ):
        read(Secret, {"HEADWAY_DATABASE_URL_FILE": str(tmp_path / "nowhere")})
    (tmp_path / "empty").write_text("")
    with pytest.raises(InvalidSettings, match="HEADWAY_DATABASE_URL is not set"):
        read(Secret, {"HEADWAY_DATABASE_URL_FILE": str(tmp_path / "empty")})
