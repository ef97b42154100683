"""Texts of the console's pages."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from headway_console.pages import filters
from headway_console.pages.audit import changes_of
from headway_console.pages.dead_letters import summary as letter_summary
from headway_console.pages.runs import trace_link
from headway_console.pages.work_queue import REASONS, cancel_summary, waits_for
from headway_console.reading.audit import AuditEntry
from headway_console.settings import ConsoleSettings
from headway_contract.dead_letters import LetterResult
from headway_contract.work_queue import CancelAnswer, CancelResult
from headway_decisions.capacity.capacity import Reason
from headway_service_kit.settings_text import settings_in_effect

SETTINGS = {"database_url": "postgresql://me:secret@db/headway", "nats_url": "nats://n:4222"}
ID = UUID(int=1)


@pytest.mark.parametrize(
    ("jaeger", "trace", "link"),
    [
        ("http://jaeger:16686/", "abc", "http://jaeger:16686/trace/abc"),
        (None, "abc", None),
        ("http://jaeger:16686", None, None),
    ],
)
def test_a_run_links_to_its_trace_where_jaeger_is_known(jaeger, trace, link):
    assert trace_link(ConsoleSettings(**SETTINGS, jaeger_url=jaeger), trace) == link


def test_every_waiting_reason_has_a_text():
    assert set(Reason.__args__) <= set(REASONS)
    assert waits_for("a_new_reason") == "a new reason"


def test_results_of_bulk_actions_are_counted():
    results = [
        LetterResult(dead_letter=ID, result=result) for result in ("retried", "retried", "pruned")
    ]
    text, kind = letter_summary(results)
    assert (text, kind) == (
        "3 dead letters: 2 run again, 1 of deleted manifests",
        "good",
    )
    assert letter_summary([])[1] == "bad"
    stopped = [
        CancelResult(id=ID, result=result) for result in ("settled", "asked_to_stop", "settled")
    ]
    assert cancel_summary(CancelAnswer(results=stopped)) == (
        "2 cancelled before start, 1 asked to stop"
    )


def test_settings_show_their_source_and_no_secret():
    settings = ConsoleSettings(**SETTINGS, session_key="hush", session_hours=3.0)
    environment = {"HEADWAY_NATS_URL": "nats://n:4222", "HEADWAY_SESSION_HOURS": "5"}
    found = {setting.variable: setting for setting in settings_in_effect(settings, environment)}
    assert found["HEADWAY_NATS_URL"].source == "environment"
    assert found["HEADWAY_SESSION_HOURS"].value == "3"
    assert found["HEADWAY_SESSION_HOURS"].source == "flag"
    assert found["HEADWAY_OIDC_SCOPES"].source == "default"
    assert "secret" not in found["HEADWAY_DATABASE_URL"].value
    assert found["HEADWAY_SESSION_KEY"].value == "*****"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retry", {"attempts": 1, "interval_seconds": 60.0}, "one attempt"),
        (
            "retry",
            {"attempts": 3, "interval_seconds": 60.0, "backoff": 1.0},
            "3 attempts, 1 min apart",
        ),
        (
            "retry",
            {
                "attempts": 5,
                "interval_seconds": 0.5,
                "backoff": 1.5,
                "max_interval_seconds": 3600.0,
                "abort_on": ["ValueError"],
            },
            "5 attempts, 0.5 s apart, backoff 1.5 up to 1 h, not after ValueError",
        ),
        ("misfire", {"threshold_seconds": 60.0}, "fire once (threshold 1 min)"),
        ("misfire", {"policy": "catch_up", "limit": 3}, "catch up (limit 3)"),
        ("labels", {"team": "crm", "a": "b"}, "a=b, team=crm"),
        ("timeout_seconds", 1200.0, "20 min"),
        ("on_lost_contact", "stop", "stop"),
        ("on_dead_letter", "go_on", "go on"),
        ("enabled", False, "no"),
        ("overlap", {"allow": 3}, '{"allow": 3}'),
        ("priority", 7, "7"),
    ],
)
def test_texts_of_a_schedules_settings(name, value, text):
    assert filters.setting_text(name, value) == text


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("due:2027-03-28T01:15:00Z", "scheduled"),
        ("trigger+1:key", "triggered"),
        ("enqueue:job:key", "enqueued"),
        ("a_new_cause:1", "a new cause:1"),
    ],
)
def test_causes_in_words(cause, text):
    assert filters.cause(cause) == text


def entry(before: dict, after: dict) -> AuditEntry:
    return AuditEntry(
        id="1",
        at=datetime(2027, 1, 1, tzinfo=UTC),
        actor="ada",
        by="operator",
        action="manifest.changed",
        target="report",
        before=before,
        after=after,
    )


def test_the_audit_shows_differences():
    found = changes_of(
        entry(
            {"retry": {"attempts": 3, "backoff": 2.0}, "operator_fields": [], "gone": "here"},
            {"retry": {"attempts": 5, "backoff": 2.0}, "operator_fields": ["retry"], "note": "so"},
        )
    )
    assert found == [
        ("retry.attempts", "3", "5"),
        ("note", "", "so"),
        ("gone", "here", "none"),
    ]


def test_the_audit_shortens_long_changes():
    found = changes_of(entry({}, {f"value{number}": "x" * 500 for number in range(20)}))
    assert len(found) == 6
    assert all(len(after) < 200 for _, _, after in found)
