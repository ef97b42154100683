"""How many statements and row operations of PostgreSQL a trigger, an enqueue and a fire cost.

A count that rises slows down every run: raise it here only for a reason.
"""

import asyncio
from typing import Any

import pytest
from headway import App, every, manual, once
from headway_clock import new_id
from headway_contract import event
from headway_contract.manifests import TriggerRequest
from headway_contract.work_queue import EnqueueRequest
from headway_relay import Handover
from headway_scheduler.fire.tick import advance
from headway_scheduler.operate.enqueue import Enqueue, enqueue
from headway_scheduler.operate.triggers import trigger
from headway_scheduler.outcomes.settle import take_in
from headway_scheduler.store import OUTBOX, lock_manifests, writing
from support.outcomes import completed, packed_event
from support.statements import sent_statements, written_rows
from support.timeline import Timeline
from support.world import until

MANY = 40


@pytest.fixture
def timeline(database):
    return Timeline(database)


def app_of(when: Any) -> App:
    app = App("test")
    app.job("job")(lambda ctx, number=0: None)
    app.schedule_many("m", job="job", items=range(MANY), key=str, when=when)
    return app


async def act(database, action, request):
    """Act as the desk does; returns the answer and the rows that were written."""
    async with writing(database) as (connection, now), written_rows(connection) as written:
        answer = await action(connection, request, now=now)
    return answer, written


@pytest.mark.parametrize(("key", "statements"), [(None, 6), ("k", 7)])
async def test_a_trigger_reads_once_and_writes_once(timeline, monkeypatch, key, statements):
    await timeline.declare(app_of(manual()))
    with timeline.real_time(), sent_statements(monkeypatch) as sent:
        for manifest in ("m-1", "m-2"):
            sent.clear()  # at first the driver asks for the types of columns
            request = TriggerRequest(manifest=manifest, key=key)
            answer, written = await act(timeline.database, trigger, request)
            assert answer.result == "queued"
    # BEGIN, the time, the lock, the key if there is one, the manifest, the write, COMMIT.
    assert len(sent) == statements, sent
    assert written == {
        "occurrence": [1, 0, 0],
        "work": [1, 0, 0],
        "outbox": [1, 0, 0],
        "history": [1, 0, 0],
    }


async def test_a_trigger_hands_its_message_to_the_relay(world, monkeypatch):
    await world.provision()
    await world.scheduler(app_of(manual()))
    async with world.client("ada") as client:
        with sent_statements(monkeypatch) as sent:
            assert (await client.trigger("m-1")).work is not None

            async def is_deleted_by_id() -> bool:
                return OUTBOX.queries["published"] in sent

            await until(is_deleted_by_id, within=4, what="published without reading the outbox")


async def test_enqueued_work_is_taken_up_by_one_write(timeline, monkeypatch):
    await timeline.declare(app_of(manual()))
    with timeline.real_time(), sent_statements(monkeypatch) as sent:
        for _ in range(2):
            sent.clear()
            _, written = await act(timeline.database, enqueue, EnqueueRequest(job="job"))
            by_request = len(sent)
            handover = Handover()
            await Enqueue(timeline.database, relay=handover).run_once()
            handed, reads_outbox = handover.take()
            assert (len(handed), reads_outbox) == (1, False)
    assert written == {"enqueued": [1, 0, 0], "history": [1, 0, 0]}
    # BEGIN, the time, the job, the work, the audit, COMMIT.
    assert by_request == 6, sent
    # Whether there is any; BEGIN, the rows, the time, the write, COMMIT.
    assert len(sent) - by_request == 6, sent


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("when", [once("2027-03-01 12:01", tz="UTC"), every(minutes=1)])
async def test_a_fire_and_its_outcome_update_the_manifest_once_each(
    timeline, monkeypatch, when, packed
):
    await timeline.declare(app_of(when))
    now = timeline.at(minutes=1)
    ids = [row["id"] for row in await timeline.rows("SELECT id FROM scheduler.manifest")]
    with sent_statements(monkeypatch) as sent:
        async with timeline.database.transaction() as connection:
            await lock_manifests(connection, ids)
            await asyncio.sleep(0)  # asyncpg logs a statement in the next step of the event loop
            sent.clear()
            async with written_rows(connection) as written:
                assert (await advance(connection, ids, now=now, one_by_one=False)).queued == MANY
        # The views, the record, COMMIT.
        assert len(sent) == 3, sent
        assert written == {
            "occurrence": [MANY, 0, 0],
            "work": [MANY, 0, 0],
            "manifest": [0, MANY, 0],
            "outbox": [1, 0, 0],
        }
        outcomes = completed(await timeline.rows("SELECT * FROM scheduler.work"), now)
        events = [
            event(data, id=new_id(), source="x", subject="x", time=now)
            for data in ([packed_event(outcomes)] if packed else outcomes)
        ]
        async with timeline.database.transaction() as connection:
            await asyncio.sleep(0)
            sent.clear()
            async with written_rows(connection, hot=("occurrence",)) as written:
                await take_in(connection, events, now=now)
    # The locks of manifests, the write, COMMIT.
    assert len(sent) == 3, sent
    assert written == {
        "occurrence": [0, MANY, 0, MANY],
        "work": [0, 0, MANY],
        "manifest": [0, MANY, 0],
    }
    over = "SELECT count(*) FROM scheduler.manifest WHERE disabled_by = 'once' AND wake_at IS NULL"
    woken = "SELECT count(*) FROM scheduler.manifest WHERE enabled AND wake_at > $1"
    [[is_over]], [[is_woken]] = await timeline.rows(over), await timeline.rows(woken, now)
    assert sorted((is_over, is_woken)) == [0, MANY]
