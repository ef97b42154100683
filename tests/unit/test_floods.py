"""Flood limits: messages by sender, and the log lines about them."""

from headway_decisions.runs.report_limits import FloodLimit
from headway_jetstream_kit.limited_log import LimitedLog
from headway_tracing.log import get_logger


def test_a_sender_over_its_allowance_is_cut_off_and_others_are_not():
    limit = FloodLimit(burst=3, per_second=2)
    assert [limit.admits("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert limit.admits("b", 0.0)
    assert [limit.admits("a", 1.0) for _ in range(3)] == [True, True, False]
    assert sum(limit.admits("a", 100.0) for _ in range(9)) == 3


def test_invented_senders_take_bounded_memory_and_a_flooding_one_stays_cut_off():
    limit = FloodLimit(burst=1, per_second=1, most_senders=10)
    for number in range(100):
        limit.admits(number, now=number / 4)
        assert len(limit._buckets) <= 10
    assert not limit.admits(99, now=99 / 4)


def test_one_line_per_phrase_and_period_and_the_next_counts_the_rest(caplog):
    time = [0.0]
    limited = LimitedLog(get_logger("floods"), period=60, now=lambda: time[0])
    for number in range(1_000):
        limited.error("rejected", message=number)
        limited.warning("refused", heartbeat=number, count=2)
    time[0] = 61.0
    limited.error("rejected", message=1000)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "rejected message=0"),
        ("WARNING", "refused heartbeat=0"),
        ("ERROR", "rejected message=1000 suppressed=999"),
    ]
