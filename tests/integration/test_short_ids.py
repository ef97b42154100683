"""The beginning of an id stands for the id, in the client and in the HTTP API."""

from uuid import UUID

import pytest
from headway_errors import Invalid, NotFound
from support.work_events import queue


def start(identity: UUID, digits: int = 31) -> str:
    return identity.hex[:digits]


async def run_of(ops, work: UUID) -> UUID:
    [run] = await ops.client.runs(work=work)
    return run.run


async def test_every_request_about_an_id_takes_its_beginning(ops):
    work, letter = await ops.letter()
    run = await run_of(ops, work)
    client = ops.client
    # One run and one dead letter: the shortest beginning of a run or a letter is enough.
    assert (await client.run(start(run, 4))).status.run == run
    assert (await client.run(str(run)[:11].upper())).status.run == run
    assert (await client.work(start(run))).status.work == work
    assert (await client.work(start(work))).status.work == work
    assert [found.run for found in await client.runs(work=start(work))] == [run]
    assert (await client.dead_letter(start(letter, 4))).status.dead_letter == letter
    assert (await client.dead_letter(start(work))).status.dead_letter == letter
    assert (await client.explain_work(start(work))).work == work
    ops.mended.set()
    await ops.world.scheduler(ops.app, tick="off")  # it checks the edited input
    [retried] = await client.retry(start(letter, 4), input={"since": 1.0})
    assert (retried.dead_letter, retried.result) == (letter, "retried")
    await ops.until_outcome(work, "completed")
    assert ops.inputs[-1] == {"since": 1.0}


@pytest.mark.thorough
async def test_waiting_work_is_cancelled_by_the_beginning_of_its_id(world, client):
    await world.dispatcher()
    work = await queue(world)
    await world.until("SELECT true FROM dispatcher.work_queue WHERE id = $1", work)
    cancelled = await client.cancel(start(work))
    assert (cancelled.id, cancelled.work) == (work, work)


async def test_an_ambiguous_beginning_lists_the_first_ids(ops):
    runs = [await run_of(ops, (await ops.letter())[0]) for _ in range(7)]
    first = start(runs[0], 4)
    with pytest.raises(Invalid) as refused:
        await ops.client.run(first)
    listed = ", ".join(f"run {run}" for run in sorted(runs)[:5])
    assert str(refused.value) == (
        f"several ids begin with {first!r}: {listed}, …; write more of the id"
    )
    with pytest.raises(Invalid, match="several ids begin with"):
        await ops.client.retry(first)


async def test_an_id_that_stands_for_nothing_is_refused(world, client):
    await world.dispatcher()
    for given, error, words in (
        ("ffff", NotFound, "no run has an id that begins with 'ffff': it may be deleted by now"),
        ("fff", Invalid, "run: Invalid UUID"),
        ("nobody", Invalid, "run: Invalid UUID"),
        ("f" * 32, NotFound, "there is no run ffffffff-ffff-ffff-ffff-ffffffffffff"),
    ):
        with pytest.raises(error) as refused:
            await client.run(given)
        assert words in str(refused.value)
