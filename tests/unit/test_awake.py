"""A world keeps a core awake only where there is one to spare."""

import asyncio

import pytest
from headway_testing import awake as module
from headway_testing.awake import awake


@pytest.mark.parametrize(
    ("told", "cores"),
    [("200000 100000\n", 2.0), ("50000 100000\n", 0.5), ("max 100000\n", float("inf"))],
)
def test_what_a_container_may_use(tmp_path, told, cores):
    file = tmp_path / "cpu.max"
    file.write_text(told)
    assert module._limit(file) == cores


def test_without_a_word_there_is_no_limit(tmp_path):
    assert module._limit(tmp_path / "nothing") == float("inf")


@pytest.mark.parametrize(("cores", "looks"), [(2.0, True), (1.5, False)])
async def test_it_looks_only_with_two_cores_and_ends_with_the_block(monkeypatch, cores, looks):
    monkeypatch.setattr(module, "_cores", lambda: cores)
    before = asyncio.all_tasks()
    async with awake():
        [*looking] = asyncio.all_tasks() - before
        assert bool(looking) is looks
    await asyncio.gather(*looking, return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_an_error_inside_ends_it_too(monkeypatch):
    monkeypatch.setattr(module, "_cores", lambda: 2.0)
    before = asyncio.all_tasks()
    with pytest.raises(KeyError):
        async with awake():
            [looking] = asyncio.all_tasks() - before
            raise KeyError
    with pytest.raises(asyncio.CancelledError):
        await looking
