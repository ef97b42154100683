"""Backfill: each occurrence of a past range is queued once and recorded in the ledger."""

from datetime import timedelta

import pytest
import pytest_asyncio
from headway import App, allow, daily, exclude_dates, manual
from headway_contract.manifests import BackfillRequest
from headway_contract.work import WorkQueued
from headway_errors import Invalid
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate import backfill as operate
from support.timeline import START, Timeline

DAY = timedelta(days=1)
# 03:15 on the day on which the timeline starts.
FIRE = START.replace(hour=3, minute=15)


@pytest_asyncio.fixture
async def timeline(database) -> Timeline:
    made = Timeline(database)
    app = App("test")
    app.job("job", group="ops", start_within=60)(lambda ctx: None)
    when = daily("03:15", exclude=exclude_dates("2027-02-26"))
    app.schedule("a", job="job", when=when)
    app.schedule("wide", job="job", when=when, overlap=allow(2))
    app.schedule("manual", job="job", when=manual())
    await made.declare(app)
    return made


async def backfill(timeline, manifest="a", *, days=6, **fields):
    """Backfill the days up to the start of the timeline, including its first day."""
    request = BackfillRequest(
        manifest=manifest, since=FIRE - days * DAY, until=FIRE, actor="ada", **fields
    )
    return await timeline.do(operate.backfill, request)


async def test_occurrences_are_queued_once_oldest_first_and_one_after_the_other(timeline):
    planned = await backfill(timeline, dry_run=True)
    # One of the seven days is excluded.
    assert (planned.occurrences, planned.queued, planned.known) == (6, 6, 0)
    assert "6 of 6 occurrences would be queued" in planned.text
    assert await timeline.outbox(WorkQueued) == []
    answer = await backfill(timeline, priority=2)
    assert (answer.queued, answer.known) == (6, 0)
    again = await backfill(timeline)
    assert (again.queued, again.known) == (0, 6)
    assert "6 were backfilled before" in again.text
    for _ in range(6):
        await timeline.settle("a")
    works = await timeline.outbox(WorkQueued)
    wanted = [FIRE - days * DAY for days in (6, 5, 4, 2, 1, 0)]
    assert [work.due_at for work in works] == wanted
    assert [work.cause for work in works] == [
        f"backfill:{at.isoformat().replace('+00:00', 'Z')}" for at in wanted
    ]
    assert all(work.explicit and work.priority == 2 for work in works)
    # The minute to start counts from now, not from the past due time.
    assert all(work.start_by > timeline.clock.at for work in works)
    assert len({work.work for work in works}) == 6
    audit = "SELECT count(*) FROM scheduler.history WHERE type = 'headway.manifest.backfilled.v1'"
    assert (await timeline.rows(audit))[0]["count"] == 1
    assert (await timeline.manifest("a"))["next_due_at"] == FIRE + DAY


async def test_as_many_run_at_once_as_the_overlap_policy_allows(timeline):
    await backfill(timeline, "wide")
    assert len(await timeline.outbox(WorkQueued)) == 2
    await timeline.settle("wide")
    assert len(await timeline.outbox(WorkQueued)) == 3


async def test_missed_only_omits_fired_occurrences_and_explain_names_the_cause(timeline):
    await timeline.tick(days=1)
    await timeline.settle("a")
    fields = {"since": FIRE, "until": FIRE + DAY, "actor": "ada"}
    only = BackfillRequest(manifest="a", missed_only=True, **fields)
    missed = await timeline.do(operate.backfill, only)
    assert (missed.occurrences, missed.queued, missed.fired) == (2, 1, 1)
    await timeline.settle("a")
    both = await timeline.do(operate.backfill, BackfillRequest(manifest="a", **fields))
    assert (both.queued, both.known, both.fired) == (1, 1, 1)
    async with timeline.database.acquire() as connection:
        row = await find_manifest(connection, "a")
        answer = await explain(connection, row, at=FIRE + DAY, now=timeline.clock.at, kept_days=30)
    assert [entry.cause.partition(":")[0] for entry in answer.entries] == ["due", "backfill"]
    assert "(backfilled by ada) fired: work" in answer.text


@pytest.mark.parametrize(
    ("manifest", "fields", "message"),
    [
        ("manual", {}, "it has no scheduled times"),
        ("a", {"until": START + DAY}, "in the future: end it now or earlier"),
        ("a", {"since": FIRE + DAY, "until": FIRE}, "before it begins: swap"),
        ("a", {"since": FIRE - 1500 * DAY}, "more than 1000 occurrences .*shorter range"),
    ],
)
async def test_ranges_that_cannot_be_backfilled_are_refused(timeline, manifest, fields, message):
    request = BackfillRequest(
        **{"manifest": manifest, "since": FIRE - DAY, "until": FIRE, **fields}
    )
    with pytest.raises(Invalid, match=message):
        await timeline.do(operate.backfill, request)
