"""Explanations of work that is ordered, retried, settled or dead-lettered."""

from uuid import uuid4

import pytest
from headway_contract.work import RetryPolicy
from headway_contract.work_queue import CancelRequest, NamedWork, WorkQuestion
from headway_dispatcher.letters import letters
from headway_dispatcher.operate import explain as explanations
from headway_dispatcher.operate.cancel import cancel as cancel_work
from headway_dispatcher.store import read_times
from support.gates import SECOND, START, Gates, work

pytestmark = pytest.mark.thorough

MINUTE = 60 * SECOND
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
async def gates(database, clock):
    made = Gates(database, clock=clock)
    await made.worker("etl", slots=2)
    return made


async def explain(gates: Gates, work_id):
    return await explanations.explain(
        gates.database, None, gates.settings, WorkQuestion(work=work_id)
    )


async def cancel(gates: Gates, **named) -> None:
    async with gates.database.transaction() as connection:
        times = await read_times(connection, gates.database)
        await cancel_work(connection, CancelRequest(actor="ada", **named), times=times)


async def dead_letter(gates: Gates, **fields):
    """Return a dead-lettered work and the id of its dead letter."""
    [failed] = await gates.queue(work(retry=ONCE, **fields))
    assert await gates.drain() == 1
    await gates.end(failed, failure="ValueError")
    return failed, await gates.value("SELECT id FROM dispatcher.dead_letter")


@pytest.mark.breaks_tables("claims a lease without an event")
async def test_work_that_was_claimed_in_time_does_not_expire(gates):
    [ordered] = await gates.queue(work(start_by=START + MINUTE))
    await gates.drain()
    assert (await explain(gates, ordered)).expires_at == START + MINUTE
    await gates.execute(
        "UPDATE dispatcher.lease SET claimed_by = 'worker', nonce = 'worker', last_heard_at = now()"
    )
    answer = await explain(gates, ordered)
    assert answer.expires_at is None
    assert "worker 'worker' has claimed it and not started it yet." in answer.text


async def test_a_pending_cancel_is_named(gates):
    [running] = await gates.queue(work())
    await gates.drain()
    await gates.begin(running)
    await cancel(gates, ids=[running])
    text = (await explain(gates, running)).text
    assert text.endswith("It is being cancelled since 2027-03-01 12:00:00 UTC (cancelled by ada).")


async def test_cancelled_and_expired_work_names_the_reason(gates, clock):
    waits, late = work(not_before=START + MINUTE), work(start_by=START + SECOND, job="nobody")
    await gates.queue(waits, late)
    await cancel(gates, ids=[waits.work])
    assert "12:00:00 UTC: cancelled (cancelled by ada)." in (await explain(gates, waits.work)).text
    clock.at = START + SECOND
    await gates.drain()
    text = (await explain(gates, late.work)).text
    assert text.endswith("expired, because it had not begun by 2027-03-01 12:00:01 UTC.")
    unknown = uuid4()
    await cancel(gates, works=[NamedWork(work=unknown, round=1, group="etl")])
    assert (await explain(gates, unknown)).text.startswith(
        f"Work {unknown} (group 'etl') is settled since 2027-03-01 12:00:01 UTC: cancelled"
    )


async def test_a_retry_names_its_time_and_failure(gates):
    [failed] = await gates.queue(work(retry=RetryPolicy(attempts=2, interval_seconds=60, jitter=0)))
    await gates.drain()
    await gates.end(failed, failure="ValueError")
    answer = await explain(gates, failed)
    assert (answer.reason, answer.estimated_start) == ("not_before", START + MINUTE)
    assert (
        "it is retried at 2027-03-01 12:01:00 UTC (attempt 2 of 2; its last run failed with ValueError)"
        in answer.text
    )


async def test_a_dead_letter_names_the_next_step(gates):
    manifest = uuid4()
    failed, letter = await dead_letter(gates, manifest_id=manifest, manifest="m")
    text = (await explain(gates, failed)).text
    assert f"dead_lettered. Its dead letter {letter} (" in text
    assert f"is open: 'headway dead-letters retry {letter}' runs it again" in text
    [other] = await gates.queue(work(manifest_id=manifest, manifest="m"))
    async with gates.database.transaction() as connection:
        times = await read_times(connection, gates.database)
        await letters.retry(connection, [letter], letters.RetryOrder(actor="ada"), times=times)
    text = (await explain(gates, failed)).text
    assert text.endswith(
        "is to be retried, requested by ada at 2027-03-01 12:00:00 UTC: it is queued again once work "
        f"{other} of its manifest has ended."
    )
