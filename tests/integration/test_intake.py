"""The dispatcher's intake: work whose slot is taken, and ignored messages."""

from uuid import uuid4

import msgspec
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import WorkQueued
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish
from support.world import until


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


async def test_ignored_messages_are_counted(world):
    dispatcher = await world.dispatcher()
    scheduler = await world.scheduler()
    work = uuid4()
    queued = WorkQueued(work=work, group="ops", job="job", cause="test", queued_at=utc_now())
    work_event = event(queued, id=work, source="test", subject=work, time=utc_now())
    strange = {"specversion": "1.0", "id": "x", "source": "test", "type": "headway.work.painted.v1"}
    for body in (encode(work_event), encode(work_event), msgspec.json.encode(strange)):
        assert isinstance(await publish(world.broker, subjects.work("ops"), body), Stored)

    async def both():
        return dispatcher.counts == {"work_known_before": 1, "events_of_unknown_type": 1}

    await until(both, within=10, what="both are counted")
    _, metrics = await dispatcher.health.report("/metrics")
    for what in ("events_of_unknown_type", "work_known_before"):
        assert f'headway_dispatcher_passed_over_total{{what="{what}"}} 1.0' in metrics
    # Another service of the same process has ignored nothing.
    _, metrics = await scheduler.health.report("/metrics")
    assert 'passed_over_total{what="' not in metrics
    assert (
        await world.value("SELECT count(*) FROM dispatcher.history WHERE work_id = $1", work) == 1
    )
