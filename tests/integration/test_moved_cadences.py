"""A changed time of a decorated job's cadence changes its manifest and makes no other."""

from datetime import timedelta

import pytest
from headway import App, cron, daily
from headway.define.cadences import When
from headway_contract.manifests import LedgerQuestion
from headway_scheduler.explain import ledger_check
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from support.timeline import Timeline

NAME = "digest-daily"


def app_with(*cadences: When, generation: int = 0) -> App:
    """An app whose job has these cadences, and a dependent of the first."""
    app = App("test", generation=generation)

    def digest(ctx): ...

    for when in cadences:
        when(digest)
    app.job("digest", group="ops")(digest)
    app.job("mail", group="ops")(lambda ctx: None)
    if len(cadences) == 1:
        app.manifest(digest).then("mail")
    return app


async def id_and_next(timeline: Timeline, manifest: str = NAME) -> tuple:
    [row] = await timeline.rows(
        "SELECT id, to_char(next_due_at AT TIME ZONE 'UTC', 'DD HH24:MI') AS next"
        " FROM scheduler.manifest WHERE external_id = $1 AND pruning_at IS NULL",
        manifest,
    )
    return row["id"], row["next"]


async def explanation(timeline: Timeline) -> str:
    async with timeline.database.acquire() as connection:
        row = await find_manifest(connection, NAME)
        answer = await explain(connection, row, at=None, now=timeline.clock.at, kept_days=30)
    return answer.text


async def test_a_moved_time_and_its_way_back_keep_the_manifest(timeline):
    """The clock starts on 1 March at 12:00."""
    await timeline.declare(app_with(daily("13:00")))
    identity, first = await id_and_next(timeline)
    child, _ = await id_and_next(timeline, "mail")
    assert first == "01 13:00"
    await timeline.tick(hours=1)
    await timeline.settle(NAME)
    await timeline.change(NAME, attempts=7, actor="ada")

    timeline.at(hours=2)
    moved = await timeline.declare(app_with(daily("15:00", days="weekdays", tz="Europe/London")))
    assert (moved.moved, moved.created, moved.changed, moved.pruned) == ([NAME], [], [], [])
    assert any("attempts stays 7 as an operator set it" in text for text in moved.warnings)
    assert await id_and_next(timeline) == (identity, "01 15:00")
    await timeline.tick(hours=3.1)
    await timeline.settle(NAME)

    timeline.at(hours=4)
    back = await timeline.declare(app_with(daily("13:00")))
    assert (back.moved, back.created, back.pruned) == ([NAME], [], [])
    assert await id_and_next(timeline) == (identity, "02 13:00")
    assert await id_and_next(timeline, "mail") == (child, None)
    assert await timeline.ledger(NAME) == [("60", "queued", None), ("180", "queued", None)]
    text = await explanation(timeline)
    assert "daily at 13:00 (UTC)" in text
    assert "2027-03-01 15:00:00+00:00 fired" in text
    await timeline.tick(hours=25.1)
    page = await ledger_check.check_page(
        timeline.database, LedgerQuestion(), kept=timedelta(days=30)
    )
    assert (page.gaps, page.fire_times) == ([], 3)


@pytest.mark.thorough
async def test_a_time_that_was_due_before_the_move_is_decided_by_the_old_cadence(timeline):
    await timeline.declare(app_with(daily("13:00")))
    timeline.at(hours=1, minutes=1)
    await timeline.declare(app_with(daily("14:00")))
    assert await timeline.ledger(NAME) == [("60", "queued", None)]


@pytest.mark.thorough
@pytest.mark.parametrize("blocked", [False, True])
async def test_a_move_leaves_work_and_dead_letters_alone(timeline, blocked):
    await timeline.declare(app_with(daily("13:00")))
    identity, _ = await id_and_next(timeline)
    await timeline.tick(hours=1)
    work, letter = await timeline.dead_letter(NAME) if blocked else (None, None)
    timeline.at(hours=2)
    assert (await timeline.declare(app_with(daily("15:00")))).moved == [NAME]
    assert (await timeline.manifest(NAME))["blocked_by"] == letter
    assert len(await timeline.under_way(NAME)) == (not blocked)
    if blocked:
        await timeline.resolve(NAME, work, letter, retried=False)
    else:
        await timeline.settle(NAME)
    await timeline.tick(hours=3.1)
    assert (await id_and_next(timeline))[0] == identity
    assert await timeline.ledger(NAME) == [("60", "queued", None), ("180", "queued", None)]
    page = await ledger_check.check_page(
        timeline.database, LedgerQuestion(), kept=timedelta(days=30)
    )
    assert page.gaps == []


@pytest.mark.thorough
async def test_an_older_generation_does_not_move_it_back(timeline):
    await timeline.declare(app_with(daily("13:00"), generation=1))
    await timeline.declare(app_with(daily("14:00"), generation=2))
    assert (await timeline.declare(app_with(daily("13:00"), generation=1))).stale
    assert (await id_and_next(timeline))[1] == "01 14:00"


async def test_one_of_two_cadences_of_a_kind_moves_and_another_kind_is_another_manifest(timeline):
    morning, evening = daily("13:00"), daily("17:00", name="evening")
    await timeline.declare(app_with(morning, evening))
    before = await id_and_next(timeline), await id_and_next(timeline, "digest-evening")
    moved = await timeline.declare(app_with(daily("18:00", name="evening"), morning))
    assert (moved.moved, moved.unchanged) == (["digest-evening"], 1)
    assert await id_and_next(timeline) == before[0]
    assert await id_and_next(timeline, "digest-evening") == (before[1][0], "01 18:00")
    # A cron expression is another kind, unless it takes over the name.
    kept = await timeline.declare(app_with(cron("0 13 * * *", name="daily"), evening))
    assert (kept.moved, kept.created, kept.pruned) == ([NAME, "digest-evening"], [], [])
    other = await timeline.declare(app_with(cron("0 13 * * *"), evening))
    assert (other.moved, other.created, other.pruned) == ([], ["digest-cron"], [NAME])


async def test_a_plan_says_moved_and_a_pause_outlives_the_move(world, client):
    await world.declare(app_with(daily("06:00")))
    await world.scheduler(tick="off")
    await client.pause(NAME, reason="the archive is being moved")
    planned = await client.plan(app_with(daily("07:00")).definitions(), days=2)
    assert (planned.moved, planned.created, planned.changed, planned.pruned) == ([NAME], [], [], [])
    [change] = planned.fires
    assert {fire.local[11:16] for fire in change.appear} == {"07:00"}
    assert {fire.local[11:16] for fire in change.vanish} == {"06:00"}
    await world.declare(app_with(daily("07:00")))
    assert "the archive is being moved" in (await client.explain(NAME)).text
