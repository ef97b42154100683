"""Input and output of the command line: times, tables, the notice of an `up`."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import click
import pytest
from headway_cli.commands import headway, run
from headway_cli.errors import PREFIXES
from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, find_running
from headway_cli.terminal.output import printable, table
from headway_cli.terminal.times import has_offset, read_moment, read_past, shifted, shown
from headway_cli.up.up import noted
from headway_cli.work.runs import why_text
from headway_contract.work_queue import WorkStatus
from headway_scheduler.settings import SchedulerSettings
from headway_service_kit.settings import InvalidSettings

NOW = datetime(2027, 6, 1, 1, 0, tzinfo=UTC)  # 03:00 in Berlin
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("given", "zone", "past", "expected"),
    [
        ("2027-03-28T03:15:00Z", BERLIN, False, "2027-03-28T03:15"),
        ("2027-03-28T03:15+02:00", "UTC", False, "2027-03-28T01:15"),
        ("2027-03-28 03:15", BERLIN, False, "2027-03-28T01:15"),
        ("2027-03-28 03:15", "UTC", False, "2027-03-28T03:15"),
        ("2027-03-28", BERLIN, False, "2027-03-27T23:00"),
        # The clock skips it: a fire of that time comes at the first instant after.
        ("2027-03-28 02:30", BERLIN, False, "2027-03-28T01:00"),
        ("2027-03-28 02:00", BERLIN, False, "2027-03-28T01:00"),
        # The clock shows it twice.
        ("2027-10-31 02:30", BERLIN, False, "2027-10-31T00:30"),
        ("03:15", BERLIN, False, "2027-06-01T01:15"),
        ("03:15", BERLIN, True, "2027-05-31T01:15"),
        ("2:59", BERLIN, True, "2027-06-01T00:59"),
        ("00:30:10", "UTC", True, "2027-06-01T00:30:10"),
    ],
)
def test_times_are_read_in_the_zone_that_they_do_not_name(given, zone, past, expected):
    read = read_moment(given, zone, now=NOW, past=past)
    assert read == datetime.fromisoformat(f"{expected}+00:00")


@pytest.mark.parametrize(
    ("given", "zone", "expected"),
    [
        ("03:15", BERLIN, "2027-06-01T01:15"),
        ("3:00", BERLIN, "2027-06-02T01:00"),
        ("00:30", "UTC", "2027-06-02T00:30"),
        ("2027-05-01 00:30", "UTC", "2027-05-01T00:30"),
    ],
)
def test_a_time_of_day_that_is_to_come_may_be_tomorrows(given, zone, expected):
    """Night work starts in the evening and lasts until the morning."""
    read = read_moment(given, zone, now=NOW, ahead=True)
    assert read == datetime.fromisoformat(f"{expected}+00:00")


BEFORE_THE_CALENDAR = "0001-01-01T00:00+02:00"


@pytest.mark.parametrize(
    "given", ["yesterday", "25:00", "3:5", "2027-02-30", "", BEFORE_THE_CALENDAR]
)
def test_an_invalid_time_is_rejected_with_the_zone_in_use(given):
    with pytest.raises(click.BadParameter, match=r"invalid time .*: .*it is Europe/Berlin time"):
        read_moment(given, BERLIN, now=NOW)


@pytest.mark.parametrize("given", ["9999999w", "9999999 d", BEFORE_THE_CALENDAR])
def test_an_age_that_no_date_has_is_rejected(given):
    with pytest.raises(click.BadParameter):
        read_past(click.Context(click.Command("x")), click.Option(["--since"]), given)


@pytest.mark.parametrize("seconds", [1e300, float("nan"), -1e15])
def test_a_duration_that_no_date_has_is_rejected(seconds):
    with pytest.raises(click.BadParameter, match="outside of the years 1 to 9999"):
        shifted(NOW, seconds=seconds)


def test_only_an_offset_makes_a_time_an_instant():
    assert has_offset("2027-03-28T03:15Z")
    assert not any(map(has_offset, ["2027-03-28 03:15", "03:15", "nonsense"]))


def test_times_are_shown_with_their_offset():
    assert shown(NOW, BERLIN) == "2027-06-01 03:00:00+02:00"
    assert shown(None, BERLIN) == "-"


def test_columns_stand_under_each_other():
    assert table(
        ("NAME", "COUNT", "ON"), [("a", 5, True), ("longer", 1234, False), ("", 0, True)]
    ) == [
        "NAME    COUNT  ON",
        "a           5  yes",
        "longer   1234  no",
        "-           0  yes",
    ]


def test_text_of_others_does_not_move_the_cursor():
    assert table(("WHY",), [("evil\x1b[2Jtext\x07",)])[1] == "evil [2Jtext"
    assert printable("Zürich ✓") == "Zürich ✓"


def test_a_narrow_terminal_gets_a_table_that_fits():
    rows = [("0f0e7c1a-5b1f", "a-very-long-name-of-a-manifest", "short", "a reason of many words")]
    headings = ("RUN", "MANIFEST", "JOB", "WHY")
    wide = table(headings, rows)
    assert table(headings, rows, width=200) == wide
    [_, line] = table(headings, rows, width=50)
    assert line == "0f0e7c1a-5b1f  a-very-long-…  short  a reason of …"
    [_, line] = table(headings, rows, width=10)  # ids are never shortened
    assert line.startswith("0f0e7c1a-5b1f  a-very-lo…")


NOTE = {"nats_url": "nats://x", "database_url": "", "url": "http://x", "token": "secret"}


def test_the_note_of_an_up_is_there_as_long_as_it_runs(tmp_path):
    with noted(tmp_path, **NOTE):
        found = find_running(tmp_path)
        assert (found.url, found.token) == ("http://x", "secret")
        assert (tmp_path / "running.json").stat().st_mode & 0o077 == 0
    with pytest.raises(NothingRuns, match="HEADWAY_URL is not set, and no 'headway up' runs"):
        find_running(tmp_path)


@pytest.mark.parametrize(
    ("note", "complaint"),
    [
        ('{"nats_url": "x", "pid": 999999999}', r"process 999999999 is gone\): start it again"),
        ('{"nats_url": "x"', "cannot be read"),
        ("[]", "cannot be read"),
    ],
)
def test_a_stale_or_broken_note_is_reported(tmp_path, note, complaint):
    (tmp_path / "running.json").write_text(note)
    with pytest.raises(NothingRuns, match=complaint):
        find_running(tmp_path)


def test_a_note_of_another_users_process_counts(tmp_path, monkeypatch):
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    with noted(tmp_path, **NOTE):
        monkeypatch.setattr(os, "kill", refuse)
        assert find_running(tmp_path).url == "http://x"


SERVERS = {"HEADWAY_DATABASE_URL": "postgresql://", "HEADWAY_NATS_URL": "nats://x"}


@pytest.mark.parametrize(("given", "expected"), [("none", None), ("NULL", None), ("7", 7)])
def test_a_limit_may_be_lifted(given, expected):
    environment = {**SERVERS, "HEADWAY_MAX_ENTRIES_PER_CYCLE": given}
    read = settings.read(SchedulerSettings, {}, environment)
    assert read.max_entries_per_cycle == expected


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("MAX_ENTRIES_PER_CYCLE", "0"),
        ("MAX_ENTRIES_PER_CYCLE", "all"),
        ("HISTORY_DAYS", "0"),
        ("HISTORY_DAYS", "none"),
        ("PRUNE", "everything"),
        ("TICK", "maybe"),
    ],
)
def test_settings_of_the_scheduler_that_make_no_sense(name, given):
    with pytest.raises(InvalidSettings, match=f"HEADWAY_{name}"):
        settings.read(SchedulerSettings, {}, {**SERVERS, f"HEADWAY_{name}": given})


def test_every_exception_with_a_remedy_exists_once():
    root = Path(__file__).parents[2]
    sources = [
        path for top in ("libs", "services", "proto-schemas") for path in (root / top).rglob("*.py")
    ]
    found = re.findall(r"^class (\w+)\(", "\n".join(map(Path.read_text, sources)), re.MULTILINE)
    assert [name for name in PREFIXES if found.count(name) != 1] == []


# Services only log, `completion` prints a script, and `history export` prints JSON anyway.
WITHOUT_JSON = {
    *("scheduler", "dispatcher", "console", "worker", "completion", "history export"),
}


def commands_of(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands_of(command, *path, name)


def test_every_command_prints_json():
    found = {
        name for name, command in commands_of(headway)
        if not any("--json" in option.opts for option in command.params)
    }  # fmt: skip
    assert found == WITHOUT_JSON


def test_an_option_in_front_of_a_command_is_not_ignored(capsys):
    assert run(["workers", "--url", "http://x", "drain", "abcd"]) == 2
    assert "write --url behind drain" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "reason", "year", "text"),
    [
        ("waiting", "retry", 2999, "retry until 2999-01-01 00:00:00+00:00"),
        ("queued", None, 2999, "until 2999-01-01 00:00:00+00:00"),
        ("queued", "no_worker", 2001, "no worker"),
        ("dispatched", None, 2999, ""),
        ("settled", None, 2999, "completed"),
    ],
)
def test_work_says_why_and_until_when_it_waits(state, reason, year, text):
    fields = {"group": "ops", "job": "job", "cause": "trigger:k", "queued_at": NOW}
    opens_at = datetime(year, 1, 1, tzinfo=UTC)
    outcome = "completed" if state == "settled" else None
    work = WorkStatus(
        work=UUID(int=1), round=1, state=state, wait_reason=reason, outcome=outcome,
        not_before=opens_at, **fields,
    )  # fmt: skip
    assert why_text(work) == text
