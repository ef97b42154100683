"""Log lines of a run."""

import logging

from headway.worker.context import RunLog


def test_a_line_break_in_a_message_makes_no_second_line_of_the_log(caplog):
    caplog.set_level(logging.INFO)
    RunLog("job", None).info("paid\r\nERROR forged", by="a\nb")
    assert [record.getMessage() for record in caplog.records] == [
        r"paid\r\nERROR forged by='a\nb'",
    ]
