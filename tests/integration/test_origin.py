"""The scheduler describes work that has not reached the dispatcher or is deleted there."""

from uuid import uuid4

import headway
import pytest
import pytest_asyncio
from headway import App, RequestFailed, every
from headway_contract.work_queue import WorkQuestion
from headway_relay import Handover
from headway_scheduler.operate.enqueue import Enqueue
from headway_scheduler.questions import Questions
from headway_scheduler.settings import SchedulerSettings
from support.enqueuing import app_with_jobs
from support.timeline import Timeline

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture
async def timeline(timeline) -> Timeline:
    await timeline.declare(app_with_jobs())
    return timeline


async def origin_of(timeline: Timeline, work):
    return await Questions(timeline.database, None, SchedulerSettings).origin(
        WorkQuestion(work=work)
    )


async def test_what_was_enqueued_is_followed_to_the_dispatcher(timeline, application):
    work = await headway.enqueue(application, "mail", 7, key="k")
    bad = await headway.enqueue(application, "mail", "seven")
    answer = await origin_of(timeline, work)
    assert (answer.state, answer.job, answer.group) == ("enqueued", "mail", "letters")
    assert answer.text.endswith("and waits for a scheduler to take it up")
    with timeline.real_time():
        await Enqueue(timeline.database, relay=Handover()).run_once()
    answer = await origin_of(timeline, work)
    assert (answer.state, answer.job, answer.group) == ("on_its_way", "mail", "letters")
    answer = await origin_of(timeline, bad)
    assert (answer.state, answer.group) == ("refused", "letters")
    assert "and refused: " in answer.text
    assert "is not of type" in answer.text
    async with timeline.database.acquire() as connection:
        await connection.execute("DELETE FROM scheduler.work")
        await connection.execute(
            "UPDATE scheduler.enqueued SET input = NULL, settled_at = $1 WHERE key = 'k'",
            timeline.clock.at,
        )
    assert (await origin_of(timeline, work)).state == "settled"
    assert (await origin_of(timeline, uuid4())).state == "unknown"


async def test_work_of_a_manifest_is_named_by_it(timeline):
    app = App("other")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("a", job="job", when=every(minutes=1))
    await timeline.declare(app)
    await timeline.tick(minutes=1)
    [work] = await timeline.under_way("a")
    answer = await origin_of(timeline, work["id"])
    assert (answer.state, answer.manifest, answer.job, answer.group) == (
        "on_its_way",
        "a",
        "job",
        "ops",
    )
    assert answer.since == timeline.clock.at


async def test_the_dispatcher_asks_the_scheduler_for_what_it_does_not_know(
    world, client, application
):
    await world.dispatcher()
    await world.scheduler(app_with_jobs())
    bad = await headway.enqueue(application, "mail", "seven")
    await world.until("SELECT count(*) FROM scheduler.enqueued WHERE state = 'refused'")
    answer = await client.explain_work(bad)
    assert (answer.state, answer.gates) == ("refused", [])
    assert answer.text.startswith(f"Work {bad} (job 'mail', group 'letters') was enqueued at ")
    with pytest.raises(RequestFailed, match="is not known to the dispatcher"):
        await client.explain_work(uuid4())
