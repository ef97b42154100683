"""The log of `up` as lines, and the entries of failures."""

import logging
from uuid import UUID

import pytest
from headway_cli.up.log_lines import drawn, entry_of_line, entry_of_record, is_shown
from headway_contract.lifecycle import Failure
from headway_dispatcher.runs.failure_log import FailureLog, RunFailure
from headway_tracing.log import Entry
from msgspec.structs import replace

ID = UUID(int=7)
FAILED = RunFailure(
    run=ID, work=ID, manifest=None, job="import", worker="w", failure=Failure(kind="ValueError"),
    attempt=1, attempts=3, counted=True, next_seconds=60.2, reason="retry", dead_letter=None,
)  # fmt: skip


def record(name: str, level: int, event: str, **fields: object) -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, Entry(event, fields), None, None)


@pytest.mark.parametrize(
    ("name", "level", "shown"),
    [
        ("headway_dispatcher.wiring", logging.INFO, False),
        ("headway.worker.runtime", logging.INFO, False),
        ("headway_scheduler.declare.startup", logging.INFO, True),
        ("headway_cli.up.up", logging.WARNING, True),
        ("headway.worker.lease_runner", logging.ERROR, False),
        ("headway.job.import", logging.INFO, True),
        ("library.of.the.app", logging.INFO, True),
    ],
)
def test_wiring_is_left_out(name, level, shown):
    assert is_shown(entry_of_record(record(name, level, "it happened"))) is shown


@pytest.mark.parametrize("line", ["hello", "{", "[1]", '{"level": "info"}', "{} {}", "null"])
def test_other_output_of_a_worker_is_no_entry(line):
    assert entry_of_line(line) is None


def test_an_entry_is_a_line_with_its_traceback_below():
    failed = record(
        *("headway_dispatcher.runs.failure_log", logging.ERROR, "run failed"),
        job="import",
        failure="KeyError: 7",
        exception="Traceback\n\tframe\x1b[2J\nKeyError: 7\n",
    )
    first, *rest = drawn(entry_of_record(failed)).plain.splitlines()
    assert first[8:] == ' ERROR   dispatcher: run failed job=import failure="KeyError: 7"'
    assert rest == ["    Traceback", "            frame [2J", "    KeyError: 7"]
    entry = entry_of_line(
        '{"time": "2027-01-01T00:00:07.1+00:00", "level": "info", "logger": "headway.job.a", "event": "b"}'
    )
    assert drawn(entry).plain == "00:00:07 INFO    a: b"


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({}, "attempt 1 of 3, next in 60 s"),
        ({"next_seconds": 0.0}, "attempt 1 of 3, next at once"),
        (
            {"counted": False, "reason": "worker_stopped", "next_seconds": 0.2},
            "not counted as an attempt (worker_stopped), next at once",
        ),
        (
            {"attempt": 3, "next_seconds": None, "dead_letter": ID},
            f"attempt 3 of 3, dead letter {ID}: headway dead-letters retry {ID}",
        ),
        ({"next_seconds": None, "reason": "wrong"}, "attempt 1 of 3, cancelled: wrong"),
    ],
)
def test_what_follows(changes, follows):
    assert replace(FAILED, **changes).follows == follows


def test_a_flood_of_failures_of_one_job_is_summed_up(caplog):
    entries = FailureLog()
    entries.write([FAILED] * 500)
    assert 100 <= len(caplog.records) < 110
    entries.write([replace(FAILED, job="other")])
    assert caplog.records[-1].msg.fields["job"] == "other"


def test_a_run_that_was_handed_back_is_no_error(caplog):
    caplog.set_level(logging.INFO)
    FailureLog().write(["another fact", FAILED, replace(FAILED, counted=False)])
    assert [entry.levelno for entry in caplog.records] == [logging.ERROR, logging.INFO]
