"""A world's loop looks for answers all the time, unless others want the core."""

import asyncio

import pytest
from headway_clock import monotonic
from headway_testing import awake as module
from headway_testing.awake import awake


@pytest.fixture
def rounds(monkeypatch):
    """Small rounds of looks, and how many have begun or ended; the core is ours in all of them."""
    seen = []

    def used() -> float:
        seen.append(2 * monotonic())
        return seen[-1]

    monkeypatch.setattr(module, "_LOOKS", 3)
    monkeypatch.setattr(module, "thread_time", used)
    return seen


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


async def test_it_looks_all_the_time(rounds):
    async with awake():
        await turns(50)
    assert len(rounds) > 20


async def test_it_rests_where_others_want_the_core(rounds, monkeypatch):
    monkeypatch.setattr(module, "thread_time", lambda: rounds.append(0) or 0.0)
    async with awake():
        await turns(50)
    assert len(rounds) == 2


async def test_it_ends_with_the_block_and_with_an_error_in_it(rounds):
    before = asyncio.all_tasks()
    with pytest.raises(KeyError):
        async with awake():
            [looking] = asyncio.all_tasks() - before
            raise KeyError
    with pytest.raises(asyncio.CancelledError):
        await looking
