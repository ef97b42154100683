"""The dispatcher's intake: what it does with work whose place is taken."""

from uuid import uuid4

from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import WorkQueued
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publishing import publish


async def test_work_whose_slot_is_taken_is_coalesced_and_never_sticks(world):
    manifest, first, second, beside = (uuid4() for _ in range(4))
    await world.dispatcher()
    for work, slot in ((first, 0), (second, 0), (beside, 1)):
        queued = WorkQueued(
            work=work,
            manifest_id=manifest,
            group="ops",
            job="job",
            cause=f"test:{work}",
            queued_at=utc_now(),
            slot=slot,
        )
        body = encode(event(queued, id=work, source="test", subject=work, time=utc_now()))
        assert isinstance(await publish(world.broker, subjects.work("ops"), body), Stored)
        await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", work)
    rows = await world.rows("SELECT id, state, outcome FROM dispatcher.work_queue")
    states = {row["id"]: (row["state"], row["outcome"]) for row in rows}
    assert states[second] == ("settled", "coalesced")
    assert {states[first][0], states[beside][0]} <= {"queued", "waiting"}
