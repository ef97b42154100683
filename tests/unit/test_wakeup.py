"""Wake-up calls between the passes of one process."""

import asyncio
from datetime import UTC, datetime

import pytest
from headway_service_kit.passes import Wakeup

EIGHT, NINE = (datetime(2027, 3, 1, hour, tzinfo=UTC) for hour in (8, 9))


async def is_called(wakeup: Wakeup) -> bool:
    """Return whether a pass that rests is woken."""
    resting = asyncio.create_task(wakeup.rest(60))
    for _ in range(3):
        await asyncio.sleep(0)
    woken = resting.done()
    resting.cancel()
    return woken


@pytest.mark.parametrize(
    ("runs_at", "wanted_at", "called"),
    [
        (NINE, EIGHT, True),
        (NINE, NINE, False),
        (EIGHT, NINE, False),
        (NINE, None, False),
        (None, EIGHT, True),
    ],
)
async def test_a_pass_is_called_only_if_it_would_run_too_late(
    runs_at: datetime | None, wanted_at: datetime | None, called: bool
) -> None:
    wakeup = Wakeup()
    wakeup.runs_at(runs_at)
    wakeup.call_by(wanted_at)
    assert await is_called(wakeup) is called


async def test_a_time_that_is_set_during_the_pass_calls_it_again() -> None:
    wakeup = Wakeup()
    wakeup.runs_at(EIGHT)
    wakeup.begin()
    wakeup.call_by(NINE)
    wakeup.runs_at(NINE)
    assert await is_called(wakeup)


@pytest.mark.parametrize("calls", [[True], [False], [True, False], [False, True]])
async def test_calls_are_coalesced_and_keep_that_there_is_work(calls: list[bool]) -> None:
    wakeup = Wakeup()
    for has_work in calls:
        wakeup.call(has_work=has_work)
    assert await is_called(wakeup)
    assert wakeup.begin() is any(calls)
    assert not wakeup.begin()
    assert not await is_called(wakeup)
