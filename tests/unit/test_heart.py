"""The worker's own heartbeat."""

import asyncio
import logging
from types import SimpleNamespace

import pytest
from headway.worker import heartbeat
from headway.worker.heartbeat import HeartbeatSender


@pytest.mark.parametrize(("blocked", "warned"), [(90.0, True), (0.1, False)])
async def test_a_job_that_blocks_the_loop_is_logged(monkeypatch, caplog, blocked, warned):
    times = iter([0.0, blocked])
    monkeypatch.setattr(heartbeat, "monotonic", lambda: next(times))
    sender = HeartbeatSender(
        None,
        describe=lambda: SimpleNamespace(runs=["run-1"]),
        obey=lambda _: None,
        on_silence=lambda _: None,
        interval=0.0,
    )
    beats = iter([None])

    async def beat():
        if next(beats, "over") == "over":
            raise asyncio.CancelledError

    monkeypatch.setattr(sender, "beat", beat)
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await sender.beat_for_ever()
    assert (
        "event loop was blocked" in caplog.text
        and "seconds=90.0" in caplog.text
        and "run-1" in caplog.text
    ) is warned
