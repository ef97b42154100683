"""Stored progress of runs."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from headway_contract.worker_protocol import LINES_LIMIT, LogLine, Progress
from headway_decisions.runs.report_limits import LATE, News, Teller, digest, refusal
from hypothesis import given
from hypothesis import strategies as st

RUN = UUID("01930000-0000-7000-8000-000000000001")
LEASE = UUID("01930000-0000-7000-8000-000000000003")
NOW = datetime(2027, 5, 1, tzinfo=UTC)
TELLER = Teller(run=RUN, lease=LEASE, token="t", claimed_by="w1")


def report(number=1, **fields) -> Progress:
    given = {"lease": LEASE, "token": "t", "run": RUN, "number": number, "at": NOW}
    return Progress(**{**given, **fields})


def line(number: int, message: str = "said", **fields) -> LogLine:
    return LogLine(number=number, at=NOW, message=message, **fields)


@pytest.mark.parametrize(
    ("changes", "news", "expected"),
    [
        ({}, {}, None),
        ({"claimed_by": None}, {}, None),
        ({"claimed_by": "w2"}, {}, "not_the_claimant"),
        ({"token": "other"}, {}, "wrong_token"),
        ({"lease": RUN}, {}, "unknown_run"),
        ({"ended_at": NOW - LATE}, {}, None),
        ({"ended_at": NOW - LATE - timedelta(seconds=1)}, {}, "too_late"),
        ({}, {"lease": RUN}, "unknown_run"),
    ],
)
def test_only_the_claimant_may_report(changes, news, expected):
    teller = Teller(**{"run": RUN, "lease": LEASE, "token": "t", "claimed_by": "w1", **changes})
    found = refusal(teller, News(worker="w1", lease=LEASE, progress=report(**news)), now=NOW)
    assert found == expected


def test_an_unknown_run_is_refused():
    assert (
        refusal(None, News(worker="w1", lease=LEASE, progress=report()), now=NOW) == "unknown_run"
    )


@given(st.permutations([report(1, percent=10.0, lines=[line(1)]), report(2, percent=20.0, lines=[line(2), line(3)]), report(2, percent=20.0, lines=[line(2), line(3)])]))  # fmt: skip
def test_order_and_doubles_do_not_matter(news):
    kept = digest(TELLER, news)
    assert (kept.percent, [entry.number for entry in kept.lines], kept.dropped) == (
        20.0,
        [1, 2, 3],
        0,
    )


def test_excess_lines_are_dropped_and_counted():
    lines = [line(LINES_LIMIT), line(LINES_LIMIT + 1), line(1, fields={"a": 1})]
    kept = digest(TELLER, [report(lines=lines)])
    assert ([entry.number for entry in kept.lines], kept.dropped) == ([1, LINES_LIMIT], 1)
    full = Teller(run=RUN, lease=LEASE, token="t", log_bytes=256 * 1024 - 3)
    assert digest(full, [report(lines=[line(1)])]).dropped == 1
    assert digest(full, [report(lines=[line(1, "")], dropped=7)]).dropped == 7


def test_long_and_unknown_values_are_cut():
    odd = line(1, "x" * 9999, level="shout", fields={"k": 1})
    [kept] = digest(TELLER, [report(lines=[odd])]).lines
    assert (kept.level, len(kept.message), kept.fields) == ("info", 4096, {"k": 1})
    large = digest(TELLER, [report(lines=[line(1, fields={"k": "v" * 9999})])]).lines[0]
    assert "more than" in large.fields["fields_left_out"]
