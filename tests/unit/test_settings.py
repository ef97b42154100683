"""Settings: one struct, all problems at once."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import pytest
from headway_cli import commands
from headway_cli.serve.known_settings import SECTIONS
from headway_cli.up.plan import make_plan
from headway_service_kit.settings import InvalidSettings, read, variable_of
from headway_service_kit.settings_text import look, mask
from msgspec import Meta, Struct

from generators.settings_page import described, files

ROOT = Path(__file__).parents[2]


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


def test_all_problems_are_reported_together():
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


def test_up_applies_defaults_of_definitions_and_reports_all_problems(monkeypatch):
    app = str(ROOT / "tests" / "support" / "counting_app.py")
    terms = {"worker_commands": [], "data": Path("d"), "seconds": None, "wait": 1.0}
    monkeypatch.setenv("HEADWAY_TIMEOUT_SECONDS", "77")
    plan = make_plan(app, {}, **terms)
    assert {manifest.timeout_seconds for manifest in plan.definitions.manifests} == {77}
    monkeypatch.setenv("HEADWAY_TIMEOUT_SECONDS", "0")
    monkeypatch.setenv("HEADWAY_GATE_BATCH", "0")
    monkeypatch.setenv("HEADWAY_WORKER_SLOTS", "0")
    with pytest.raises(InvalidSettings) as caught:
        make_plan(app, {}, **terms)
    for name in ("TIMEOUT_SECONDS", "GATE_BATCH", "WORKER_SLOTS"):
        assert f"HEADWAY_{name}='0'" in str(caught.value)


class Limited(Struct, frozen=True, kw_only=True):
    share: Annotated[float, Meta(gt=0, le=1, description="How much.")] = 0.5
    most: Annotated[int, Meta(ge=1)] | None = 3
    name: str | None = None


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"HEADWAY_SHARE": "0"}, r"HEADWAY_SHARE='0': Expected `float` > 0.0"),
        ({"HEADWAY_SHARE": "nan"}, r"HEADWAY_SHARE='nan': "),
        ({"HEADWAY_SHARE": "-inf"}, r"HEADWAY_SHARE='-inf': "),
        ({"HEADWAY_MOST": "0"}, r"HEADWAY_MOST='0': "),
        ({"HEADWAY_SHARE": "none"}, r"HEADWAY_SHARE='none': "),
    ],
)
def test_numbers_out_of_their_range_are_refused(given, complaint):
    with pytest.raises(InvalidSettings, match=complaint):
        read(Limited, given)


class Chosen(Struct, frozen=True, kw_only=True):
    prune: Annotated[Literal["delete", "keep"], Meta(description="What then.")] = "delete"
    most: int = 3


def test_problems_are_one_a_line_with_the_choices():
    with pytest.raises(InvalidSettings) as caught:
        read(Chosen, {"HEADWAY_PRUNE": "delte", "HEADWAY_MOST": "x"})
    assert str(caught.value).splitlines() == [
        "HEADWAY_PRUNE='delte': Invalid enum value 'delte', use one of delete, keep",
        "HEADWAY_MOST='x': Expected `int`, got `str`",
    ]


def test_none_lifts_a_limit_and_is_a_word_elsewhere():
    found = read(Limited, {"HEADWAY_MOST": "None", "HEADWAY_NAME": "none"})
    assert (found.most, found.name) == (None, "none")


def test_effective_values_have_a_source(tmp_path):
    path = tmp_path / "name"
    path.write_text("nats://user:geheim@host")
    environment = {"HEADWAY_NAME_FILE": str(path), "HEADWAY_MOST": "5", "HEADWAY_SHARE": "2"}
    share, most, name = look(Limited, environment)
    assert (share.value, share.source, share.description) == (None, None, "How much.")
    assert share.problem == "'2': Expected `float` <= 1.0"
    assert (most.value, most.source, most.problem) == (5, "environment", None)
    assert (name.value, name.source) == ("nats://user:*****@host", "file")
    assert [setting.source for setting in look(Limited, {})] == ["default"] * 3
    assert look(Secret, {})[0].problem == "not set"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://db/x", "postgresql://db/x"),
        ("postgresql://u:p@db/x", "postgresql://u:*****@db/x"),
        ("postgresql://u:p,w@one,two/x", "postgresql://u:*****@one,two/x"),
        ("postgresql://u:p@ss/w@db/x", "postgresql://u:*****@db/x"),
        (
            "postgresql://u@db/x?password=p&sslmode=on",
            "postgresql://*****@db/x?password=*****&sslmode=on",
        ),
        ("nats://token@a:4222, nats://u:p@b", "nats://*****@a:4222, nats://u:*****@b"),
        ("u:p@host:4222", "u:*****@host:4222"),
    ],
)
def test_secrets_of_urls_are_masked(given, shown):
    assert mask(given) == shown


@cache
def every_variable():
    return {setting.variable for section in SECTIONS for setting in described(section)}


def test_the_page_has_every_setting():
    [page] = files(ROOT).values()
    documented = set(re.findall(r"^\| `(HEADWAY_\w+)` \|", page, re.MULTILINE))
    assert documented == every_variable()
    for section in SECTIONS:
        assert {variable_of(name) for name in section.struct.__struct_fields__} <= documented
        for setting in described(section):
            assert setting.description, setting.variable
            assert setting.values, setting.variable


# Variables of tests and recipes, and names of streams and consumers.
_NO_SETTINGS = re.compile(
    r"HEADWAY_(TEST_\w+|LONG|FAULT_SECONDS|SIMULATE_DAYS|ASYNCAPI_SCHEMA|HISTORIES|CALLER_DIR"
    r"|WORK|RUNS|EVENTS|SETTLED|DOCTOR)"
)


def strangers(text):
    """Return the variables in a text that have no effect."""
    found = set(re.findall(r"\bHEADWAY_[A-Z][A-Z_]*[A-Z]\b", text))
    known = every_variable() | {f"{variable}_FILE" for variable in every_variable()}
    return sorted(variable for variable in found - known if not _NO_SETTINGS.fullmatch(variable))


def test_every_variable_that_is_written_about_exists():
    pages = [
        path
        for folder in ("docs", "deploy", "examples", "services", "libs", "proto-schemas")
        for ending in ("*.md", "*.yaml", "*.yml", "*.py", "*.ts", "Dockerfile")
        for path in (ROOT / folder).rglob(ending)
        if not {"node_modules", "dist", "secrets"} & set(path.parts)
    ]
    assert len(pages) > 100
    wrong = {str(path.relative_to(ROOT)): strangers(path.read_text()) for path in pages}
    wrong |= {name: strangers((ROOT / name).read_text()) for name in ("README.md", "justfile")}
    assert {path: names for path, names in wrong.items() if names} == {}
    assert strangers("HEADWAY_MAX_ACTIVE HEADWAY_MAX_ACTIF") == ["HEADWAY_MAX_ACTIF"]


def test_the_command_shows_effective_values(monkeypatch, capsys):
    monkeypatch.setenv("HEADWAY_DATABASE_URL", "postgresql://me:geheim@db/headway")
    monkeypatch.setenv("HEADWAY_MAX_ACTIVE", "7")
    monkeypatch.delenv("HEADWAY_NATS_URL", raising=False)
    assert commands.run(["settings"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"HEADWAY_DATABASE_URL +postgresql://me:\*{5}@db/headway +environment", shown)
    assert re.search(r"HEADWAY_MAX_ACTIVE +7 +environment", shown)
    assert re.search(r"HEADWAY_NATS_URL +not set", shown)
    assert "geheim" not in shown
    assert commands.run(["settings", "dispatcher", "--changed", "--json"]) == 0
    [setting] = json.loads(capsys.readouterr().out)
    assert (setting["part"], setting["variable"], setting["value"]) == (
        "dispatcher",
        "HEADWAY_MAX_ACTIVE",
        7,
    )


def test_the_command_shows_problems(monkeypatch, capsys):
    monkeypatch.setenv("HEADWAY_DATABASE_URL", "mysql://me:geheim@db/headway")
    monkeypatch.setenv("HEADWAY_HISTORY_DAYS", "-1")
    assert commands.run(["settings"]) == 2
    shown = capsys.readouterr().out
    assert "not a PostgreSQL URL" in shown
    assert "'-1': Expected `float` > 0.0" in shown
    assert "geheim" not in shown
