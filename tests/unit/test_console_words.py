"""What pages of the console say."""

from uuid import UUID

import pytest
from headway_console.pages.cancelling import in_words
from headway_console.pages.dead_letters import told
from headway_console.pages.run import trace_link
from headway_console.pages.work_queue import REASONS, waits_for
from headway_console.settings import ConsoleSettings
from headway_contract.dispatching import CancelAnswer, CancelResult, LetterResult
from headway_decisions.capacity import Reason
from headway_service_kit.describing import holding

SETTINGS = {"database_url": "postgresql://me:secret@db/headway", "nats_url": "nats://n:4222"}
ONE = UUID(int=1)


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


def test_every_reason_to_wait_has_words():
    assert set(Reason.__args__) <= set(REASONS)
    assert waits_for("a_new_reason") == "a new reason"


def test_what_became_of_many_is_counted():
    results = [
        LetterResult(dead_letter=ONE, result=one) for one in ("retried", "retried", "pruned")
    ]
    text, kind = told(results)
    assert (text, kind) == (
        "of 3 dead letters: 2 run again, 1 belong to a manifest that is gone",
        "good",
    )
    assert told([])[1] == "bad"
    stopped = [CancelResult(id=ONE, result=one) for one in ("settled", "asked_to_stop", "settled")]
    assert in_words(CancelAnswer(results=stopped)) == "2 will never start, 1 asked to stop"


def test_settings_say_who_said_them_and_no_secret():
    settings = ConsoleSettings(**SETTINGS, session_key="hush", session_hours=3.0)
    environment = {"HEADWAY_NATS_URL": "nats://n:4222", "HEADWAY_SESSION_HOURS": "5"}
    found = {one.variable: one for one in holding(settings, environment)}
    assert found["HEADWAY_NATS_URL"].source == "environment"
    assert found["HEADWAY_SESSION_HOURS"].value == 3.0
    assert found["HEADWAY_SESSION_HOURS"].source == "flag"
    assert found["HEADWAY_OIDC_SCOPES"].source == "default"
    assert "secret" not in str(found["HEADWAY_DATABASE_URL"].value)
    assert found["HEADWAY_SESSION_KEY"].value == "*****"
