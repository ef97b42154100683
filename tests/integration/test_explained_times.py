"""Explanations of times among many decisions, and of purged decisions."""

from datetime import timedelta

import pytest
from headway import App, every
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.retention import Retention
from support.timeline import START, Timeline

pytestmark = pytest.mark.thorough


def app_with(when) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("a", job="job", when=when)
    return app


async def explain_at(timeline: Timeline, at=None) -> str:
    async with timeline.database.acquire() as connection:
        row = await find_manifest(connection, "a")
        answer = await explain(connection, row, at=at, now=timeline.clock.at, kept_days=30)
    return answer.text


async def test_a_stretch_is_found_behind_any_number_of_triggers(timeline):
    await timeline.declare(app_with(every(minutes=1)))
    await timeline.tick(minutes=1)
    for number in range(25):
        timeline.at(minutes=3, seconds=number)
        await timeline.trigger("a", actor="me")
    timeline.at(minutes=6.5)
    await timeline.settle("a")
    await timeline.tick()
    text = await explain_at(timeline, START + timedelta(minutes=5))
    assert text.startswith("Everything from 2027-03-01 12:02:00+00:00 to 2027-03-01 12:06:00")
    assert "earlier work of it was still under way" in text


async def test_past_and_current_actors_are_distinguished(timeline):
    await timeline.declare(app_with(every(minutes=1)))
    for seconds, enabled, actor in ((90, False, "ada"), (270, True, "ada"), (280, False, "bob")):
        await timeline.tick(seconds=seconds)
        await timeline.change("a", enabled=enabled, actor=actor)
        await timeline.settle("a") if await timeline.under_way("a") else None
    timeline.at(seconds=290)
    for text in (
        await explain_at(timeline),
        await explain_at(timeline, START + timedelta(minutes=3)),
    ):
        assert "was skipped: it was disabled (by ada at 2027-03-01 12:01:30+00:00)" in text
    assert "It is held: it is disabled (by bob at 2027-03-01 12:04:40+00:00)" in await explain_at(
        timeline
    )


async def test_purged_decisions_are_named_as_purged(timeline):
    await timeline.declare(app_with(every(days=50, start="2027-03-02")))
    assert "Nothing was decided about it yet." in await explain_at(timeline)
    await timeline.tick(hours=12)
    await timeline.settle("a")
    timeline.at(days=40)
    await Retention(timeline.database, days=30).run_once()
    text = await explain_at(timeline)
    assert "Nothing was decided about it yet" not in text
    assert "No decision about it is on record any more: they are kept for 30 days" in text
    assert "Its last work completed at 2027-03-02 00:00:00+00:00." in text
