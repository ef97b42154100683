"""Wake-up calls that carry more than the call."""

import asyncio
from datetime import UTC, datetime

import pytest
from headway_dispatcher.gate.gate import GateCall
from headway_scheduler.fire.tick import Alarm
from headway_service_kit.passes import Wakeup

EIGHT, NINE = (datetime(2027, 3, 1, hour, tzinfo=UTC) for hour in (8, 9))


async def is_called(wakeup: Wakeup) -> bool:
    """Whether somebody who rests on it is woken."""
    resting = asyncio.create_task(wakeup.rest(60))
    for _ in range(3):
        await asyncio.sleep(0)
    woken = resting.done()
    resting.cancel()
    return woken


class TestAlarm:
    @pytest.mark.parametrize(
        ("looks_at", "wanted_at", "called"),
        [
            (NINE, EIGHT, True),
            (NINE, NINE, False),
            (EIGHT, NINE, False),
            (NINE, None, False),
            (None, EIGHT, True),
        ],
    )
    async def test_the_tick_is_called_only_if_it_would_look_too_late(
        self, looks_at: datetime | None, wanted_at: datetime | None, called: bool
    ) -> None:
        alarm = Alarm()
        alarm.looks_at(looks_at)
        alarm.set_for(wanted_at)
        assert await is_called(alarm) is called

    async def test_what_is_set_while_it_looks_may_have_been_missed(self) -> None:
        alarm = Alarm()
        alarm.looks_at(EIGHT)
        alarm.looking()
        alarm.set_for(NINE)
        alarm.looks_at(NINE)
        assert await is_called(alarm)


class TestGateCall:
    async def test_work_that_came_is_told_once(self) -> None:
        call = GateCall()
        call.work_came()
        assert await is_called(call)
        assert call.take()
        assert not call.take()

    async def test_an_ordinary_call_says_nothing_of_work(self) -> None:
        call = GateCall()
        call.call()
        assert await is_called(call)
        assert not call.take()
