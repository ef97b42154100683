"""Decisions about due times in the ledger: missed, overlapping, paused, excluded."""

from datetime import timedelta
from itertools import permutations
from uuid import UUID, uuid4

import pytest
from headway import App, allow, catch_up, every, exclude_times, skip_missed, spaced
from headway.define.packing import pack, unpack
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from support.timeline import Timeline, minutely

pytestmark = pytest.mark.thorough


async def unresolved(timeline) -> set[UUID]:
    """Return the dead letters that the scheduler asks about."""
    rows = await timeline.rows("SELECT dead_letter FROM scheduler.unresolved")
    return {row["dead_letter"] for row in rows}


class TestOverlap:
    async def test_skip_leaves_one_row_for_all_that_came_due_meanwhile(self, timeline):
        await timeline.declare(minutely())
        assert (await timeline.tick(minutes=1)).fired == 1
        assert (await timeline.tick(minutes=5.5)).fired == 0
        assert await timeline.ledger("a") == [("1", "queued", None)], "a pause costs nothing"
        await timeline.settle("a")
        assert await timeline.ledger("a") == [
            ("1", "queued", None),
            ("2-5", "skipped", "still_outstanding"),
        ]
        assert (await timeline.tick(minutes=6)).fired == 1

    async def test_times_due_after_the_work_ended_are_missed_and_not_outstanding(self, timeline):
        """The outcome arrives late: times that came due after the work had ended are missed."""
        await timeline.declare(minutely())
        ended = timeline.at(minutes=3.5)
        await timeline.tick(minutes=1)
        timeline.at(minutes=10.5)
        await timeline.settle("a", at=ended)
        assert await timeline.ledger("a") == [
            ("1", "queued", None),
            ("2-3", "skipped", "still_outstanding"),
            ("4-9", "skipped", "missed"),
            ("10", "queued", None),
        ]

    async def test_queue_one(self, timeline):
        await timeline.declare(minutely(overlap="queue_one"))
        for minute in (1, 2, 3):
            await timeline.tick(minutes=minute)
        timeline.at(minutes=3.5)
        assert len(await timeline.under_way("a")) == 1
        await timeline.settle("a")
        assert await timeline.ledger("a") == [
            ("1", "queued", None),
            ("2", "queued", None),
            ("3", "skipped", "one_already_waits"),
        ]
        assert [row["cause"] for row in await timeline.under_way("a")] == [
            "due:2027-03-01T12:02:00Z"
        ]

    async def test_allow_runs_several_in_slots_of_their_own(self, timeline):
        await timeline.declare(minutely(overlap=allow(2)))
        for minute in (1, 2, 3):
            await timeline.tick(minutes=minute)
        assert [row["slot"] for row in await timeline.under_way("a")] == [0, 1]
        timeline.at(minutes=3.5)
        await timeline.settle("a")
        await timeline.tick(minutes=4)
        assert sorted(row["slot"] for row in await timeline.under_way("a")) == [0, 1]
        assert ("3", "skipped", "still_outstanding") in await timeline.ledger("a")

    async def test_cancel_running_asks_the_old_one_to_stop_and_follows_it(self, timeline):
        await timeline.declare(minutely(overlap="cancel_running"))
        for minute in (1, 2):
            await timeline.tick(minutes=minute)
        [work] = await timeline.under_way("a")
        rows = await timeline.rows(
            "SELECT body FROM scheduler.outbox WHERE message_id = $1", f"cancel.{work['id']}.1"
        )
        assert b"headway.work.cancel_requested.v1" in rows[0]["body"]
        await timeline.settle("a", "cancelled")
        assert [row["cause"] for row in await timeline.under_way("a")] == [
            "due:2027-03-01T12:02:00Z"
        ]


class TestMissed:
    async def test_by_default_it_fires_once(self, timeline):
        await timeline.declare(minutely())
        assert (await timeline.tick(hours=3, seconds=30)).fired == 1
        assert await timeline.ledger("a") == [
            ("1-179", "skipped", "missed"),
            ("180", "queued", None),
        ]

    async def test_skip_waits_for_the_next_one(self, timeline):
        await timeline.declare(minutely(every(hours=1), misfire=skip_missed()))
        assert (await timeline.tick(hours=3, minutes=2)).fired == 0
        assert (await timeline.tick(hours=4)).fired == 1
        assert await timeline.ledger("a") == [
            ("60-180", "skipped", "missed"),
            ("240", "queued", None),
        ]

    @pytest.mark.parametrize("overlap", ["skip", "queue_one", "cancel_running"])
    async def test_catch_up_makes_good_for_the_last_ones_one_after_the_other(
        self, timeline, overlap
    ):
        await timeline.declare(minutely(every(hours=1), misfire=catch_up(3), overlap=overlap))
        assert (await timeline.tick(hours=5, minutes=2)).fired == 1
        for minute in (5, 10, 15):
            timeline.at(hours=5, minutes=minute)
            [work] = await timeline.under_way("a")
            assert work["cancel_reason"] is None
            await timeline.settle("a")
        assert await timeline.under_way("a") == []
        assert await timeline.ledger("a") == [
            ("60-120", "skipped", "missed"),
            ("180", "queued", None),
            ("240", "queued", None),
            ("300", "queued", None),
        ]

    async def test_a_deployment_during_the_outage_loses_nothing(self, timeline):
        """Times that came due under the old definition are decided by the old definition."""
        await timeline.declare(minutely(every(hours=1)))
        timeline.at(hours=2, minutes=30)
        await timeline.declare(minutely(every(hours=4)))
        assert await timeline.ledger("a") == [("60", "skipped", "missed"), ("120", "queued", None)]
        assert (await timeline.manifest("a"))["next_due_at"] == timeline.at(hours=4)


class TestPauses:
    @pytest.mark.parametrize(
        ("set_enabled", "reason"),
        [(Timeline.change, "manifest_disabled"), (Timeline.change_group, "group_disabled")],
    )
    async def test_a_disabled_manifest_or_group_has_one_row_for_all_skipped_times(
        self, timeline, set_enabled, reason
    ):
        await timeline.declare(minutely())
        await set_enabled(timeline, enabled=False)
        assert (await timeline.tick(minutes=90.5)).fired == 0
        await set_enabled(timeline, enabled=True)
        assert await timeline.ledger("a") == [("1-90", "skipped", reason)]
        assert (await timeline.tick(minutes=91)).fired == 1

    async def test_excluded_times_before_a_pause_are_not_blamed_on_it(self, timeline):
        """The tick sleeps through an exclusion, so these times are undecided when the pause begins."""
        await timeline.declare(minutely(exclude=[exclude_times("12:01-12:30")]))
        timeline.at(minutes=10.5)
        await timeline.change(enabled=False)
        timeline.at(minutes=35.5)
        await timeline.change(enabled=True)
        assert await timeline.ledger("a") == [
            ("1-10", "skipped", "excluded: between 12:01-12:30"),
            ("11-35", "skipped", "manifest_disabled"),
        ]
        assert (await timeline.tick(minutes=36)).fired == 1

    async def test_consecutive_pauses_have_separate_rows(self, timeline):
        await timeline.declare(minutely())
        await timeline.change(enabled=False)
        timeline.at(minutes=2.5)
        await timeline.change_group(enabled=False)
        timeline.at(minutes=4.5)
        await timeline.change(enabled=True)
        timeline.at(minutes=6.5)
        await timeline.change_group(enabled=True)
        assert await timeline.ledger("a") == [
            ("1-2", "skipped", "manifest_disabled"),
            ("3-4", "skipped", "group_disabled"),
            ("5-6", "skipped", "group_disabled"),
        ]

    @pytest.mark.parametrize("retried", [True, False])
    async def test_a_dead_letter_blocks_until_it_is_resolved(self, timeline, retried):
        await timeline.declare(minutely())
        await timeline.tick(minutes=1)
        timeline.at(minutes=1.5)
        work, letter = await timeline.dead_letter("a")
        assert (await timeline.manifest("a"))["blocked_by"] == letter
        assert (await timeline.tick(minutes=20.5)).fired == 0
        await timeline.resolve("a", work, letter, retried=retried)
        assert await timeline.ledger("a") == [
            ("1", "queued", None),
            ("2-20", "skipped", "blocked_by_dead_letter"),
        ]
        assert (await timeline.manifest("a"))["blocked_by"] is None
        under_way = [(row["id"], row["round"]) for row in await timeline.under_way("a")]
        assert under_way == ([(work, 2)] if retried else [])
        assert (await timeline.tick(minutes=21)).fired == (0 if retried else 1)

    async def test_a_policy_keeps_a_dead_letter_from_blocking(self, timeline):
        await timeline.declare(minutely(on_dead_letter="go_on"))
        for minute in (1, 2):
            assert (await timeline.tick(minutes=minute)).fired == 1
            _, letter = await timeline.dead_letter("a")
            assert letter in await unresolved(timeline)
        assert (await timeline.manifest("a"))["blocked_by"] is None
        assert await timeline.ledger("a") == [("1", "queued", None), ("2", "queued", None)]

    async def test_a_deployment_of_that_policy_unblocks_the_manifest(self, timeline):
        await timeline.declare(minutely())
        await timeline.tick(minutes=1)
        work, letter = await timeline.dead_letter("a")
        timeline.at(minutes=5.5)
        await timeline.declare(minutely(on_dead_letter="go_on"))
        assert (await timeline.manifest("a"))["blocked_by"] is None
        assert await unresolved(timeline) == {letter}, "the dead letter stays open"
        assert ("2-5", "skipped", "blocked_by_dead_letter") in await timeline.ledger("a")
        assert (await timeline.tick(minutes=6)).fired == 1
        # The old policy returns: a letter that was released before does not block again.
        await timeline.settle("a")
        await timeline.declare(minutely())
        assert (await timeline.manifest("a"))["blocked_by"] is None
        await timeline.resolve("a", work, letter, retried=False)
        assert await unresolved(timeline) == set()
        assert (await timeline.tick(minutes=7)).fired == 1

    async def test_a_repeated_retry_counts_once_although_its_decision_was_deleted(self, timeline):
        """The dead letter is older than the kept decisions."""
        await timeline.declare(minutely(on_dead_letter="go_on"))
        await timeline.tick(minutes=1)
        work, letter = await timeline.dead_letter("a")
        await timeline.rows("DELETE FROM scheduler.occurrence")
        await timeline.resolve("a", work, letter, retried=True)
        await timeline.settle("a")
        await timeline.resolve("a", work, letter, retried=True)
        assert await timeline.under_way("a") == []
        assert (await timeline.manifest("a"))["success_number"] == 1

    @pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
    async def test_the_story_of_two_rounds_ends_the_same_in_any_order(self, timeline, order):
        """Failed, retried, failed again, acknowledged: the manifest is not blocked for ever."""
        await timeline.declare(minutely())
        await timeline.tick(minutes=1)
        [work] = await timeline.under_way("a")
        timeline.at(minutes=1.5)
        first, second = uuid4(), uuid4()
        about = {"work": work["id"], "manifest_id": work["manifest_id"], "group": "ops"}
        ended = {**about, "outcome": "dead_lettered", "runs": 1, "attempts": 1}
        now = timeline.clock.at
        story = [
            WorkSettled(**ended, round=1, dead_letter=first, settled_at=now),
            DeadLetterRetried(**about, dead_letter=first, round=2, resolved_at=now),
            WorkSettled(**ended, round=2, dead_letter=second, settled_at=now),
            DeadLetterAcknowledged(**about, dead_letter=second, round=2, resolved_at=now),
        ]
        for number in order:
            await timeline.tell(story[number])
            assert len(await timeline.under_way("a")) <= 1
        for event in story:
            await timeline.tell(event)
        assert (await timeline.manifest("a"))["blocked_by"] is None
        assert await unresolved(timeline) == set()
        assert await timeline.under_way("a") == []
        assert (await timeline.tick(minutes=2)).fired == 1

    async def test_the_letter_of_another_round_unblocks_nothing(self, timeline):
        await timeline.declare(minutely())
        await timeline.tick(minutes=1)
        work, letter = await timeline.dead_letter("a")
        await timeline.resolve("a", work, uuid4(), retried=False)
        assert (await timeline.manifest("a"))["blocked_by"] == letter


async def test_an_exclusion_is_skipped_and_not_made_up_for(timeline):
    await timeline.declare(minutely(exclude=[exclude_times("12:05-12:30")]))
    for minute in (4, 5, 20, 29.9):
        await timeline.tick(minutes=minute)
        for _ in await timeline.under_way("a"):
            await timeline.settle("a")
    assert (await timeline.tick(minutes=30)).fired == 1
    [*_, skipped, fired] = await timeline.ledger("a")
    assert (skipped[0], skipped[1]) == ("5-29", "skipped")
    assert skipped[2].startswith("excluded: ")
    assert fired == ("30", "queued", None)


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "expired"])
async def test_spaced_counts_from_the_end_of_its_work_and_starts_at_once(timeline, outcome):
    await timeline.declare(minutely(spaced(minutes=10)))
    assert (await timeline.tick()).fired == 1, "a new one at once"
    timeline.at(minutes=7)
    await timeline.settle("a", outcome)
    assert (await timeline.tick(minutes=16)).fired == 0
    assert (await timeline.tick(minutes=17)).fired == 1


async def test_a_manifest_that_becomes_spaced_is_not_due_before_that(timeline):
    await timeline.declare(minutely())
    await timeline.tick(minutes=1)
    await timeline.settle("a")
    await timeline.change(enabled=False)
    timeline.at(hours=5, seconds=30)
    await timeline.declare(minutely(spaced(minutes=10)))
    await timeline.change(enabled=True)
    assert await timeline.ledger("a") == [
        ("1", "queued", None),
        ("2-300", "skipped", "manifest_disabled"),
        ("300.5", "queued", None),
    ]


async def test_a_spaced_one_does_not_begin_outside_its_window_when_a_pause_ends(timeline):
    await timeline.declare(minutely(spaced(minutes=10, between="12:00-13:00")))
    await timeline.tick()
    await timeline.settle("a")
    await timeline.change(enabled=False)
    timeline.at(hours=8)
    await timeline.change(enabled=True)
    assert await timeline.under_way("a") == []
    assert (await timeline.manifest("a"))["wake_at"] == timeline.at(days=1)
    assert (await timeline.tick()).fired == 1


async def test_the_tick_does_not_wake_before_the_jitter_of_a_spaced_manifest_ends(timeline):
    """Otherwise the tick wakes too early, finds nothing to do, and spins."""
    await timeline.declare(minutely(spaced(minutes=10), jitter=3600))
    fires_at = (await timeline.manifest("a"))["wake_at"]
    assert timeline.clock.at <= fires_at <= timeline.clock.at + timedelta(hours=1)
    early = await timeline.tick()
    assert early.fired == (1 if fires_at == timeline.clock.at else 0)
    assert early.fired or early.next_at == fires_at
    timeline.clock.at = fires_at
    await timeline.tick()
    assert len(await timeline.under_way("a")) == 1


async def test_jitter_is_decided_once_and_stored(timeline):
    await timeline.declare(minutely(every(hours=1), jitter=1800))
    stored = (await timeline.manifest("a"))["wake_at"]
    due = timeline.at(hours=1)
    assert due <= stored <= timeline.at(hours=1, minutes=30)
    timeline.clock.at = due
    await timeline.declare(minutely(every(hours=1), jitter=1800))
    assert (await timeline.manifest("a"))["wake_at"] == stored
    assert (await timeline.tick()).fired == (1 if stored == due else 0)
    timeline.clock.at = stored
    await timeline.tick()
    assert await timeline.ledger("a") == [("60", "queued", None)]


async def test_an_operators_settings_survive_a_deployment_and_can_be_given_back(timeline):
    await timeline.declare(minutely(every(hours=1), jitter=10))
    await timeline.change("a", enabled=False, attempts=9, jitter_seconds=99, actor="me")
    await timeline.declare(minutely(every(hours=2), jitter=20))
    row = await timeline.manifest("a")
    assert (row["enabled"], row["terms"]["retry"]["attempts"], row["jitter_seconds"]) == (
        False,
        9,
        99,
    )
    assert row["next_due_at"] == timeline.at(hours=2), "the code always owns the timing"
    await timeline.change("a", give_back=["enabled", "retry", "jitter"], actor="me")
    await timeline.declare(minutely(every(hours=2), jitter=30))
    row = await timeline.manifest("a")
    assert (row["enabled"], row["terms"]["retry"]["attempts"], row["jitter_seconds"]) == (
        True,
        3,
        30,
    )
    actors = await timeline.rows("SELECT source FROM scheduler.history ORDER BY id")
    assert [row["source"] for row in actors if row["source"].startswith("operator")] == [
        "operator/me",
        "operator/me",
    ]


async def test_times_that_jitter_held_back_are_recorded_when_the_timing_changes(timeline):
    def jittery(hours: int) -> App:
        app = App("test")
        app.job("job")(lambda ctx: None)
        for number in range(20):
            app.schedule(f"m-{number}", job="job", when=every(hours=hours, jitter=3000))
        return app

    await timeline.declare(jittery(1))
    now = timeline.at(hours=1, seconds=1)
    await timeline.tick()
    held = await timeline.rows(
        "SELECT external_id FROM scheduler.manifest WHERE wake_at > $1 AND next_due_at < $1", now
    )
    assert held, "precondition of this test"
    await timeline.declare(jittery(4))
    for row in held:
        assert await timeline.ledger(row["external_id"]) == [("60", "skipped", "retimed")]


async def test_a_definition_survives_serialization(timeline):
    app = minutely(every(hours=1), jitter=300, timeout=60)
    packed = unpack(pack(app.definitions()))
    await timeline.declare(packed)
    assert (await timeline.declare(app)).unchanged == 1
