"""Decisions about a manifest: which due times fire, stay pending or are skipped."""

from datetime import timedelta

import pytest
from headway_decisions.firing import due, identity
from headway_decisions.firing.manifest_state import (
    ManifestView,
    Misfire,
    Overlap,
    Owed,
    Release,
    Verdict,
)
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Every, Manual, Spaced
from headway_decisions.timing.timing import Timing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from support.judged import (
    CANCEL,
    MANIFEST,
    NOON,
    QUEUE_ONE,
    WORK,
    fired,
    noon,
    owed,
    skipped,
    success,
    view,
)


def test_nothing_before_its_time():
    verdict = due.judge(view(), now=NOON - timedelta(microseconds=1))
    assert verdict == Verdict(manifest=MANIFEST, next_due_at=NOON, wake_at=NOON)


def test_it_fires_at_its_time_and_sleeps_until_its_work_has_ended():
    assert due.judge(view(), now=NOON) == Verdict(
        manifest=MANIFEST, entries=(fired(0),), next_due_at=noon(1), wake_at=None
    )


def test_with_room_left_it_wakes_at_the_next_due_time():
    verdict = due.judge(view(overlap=Overlap(policy="allow", limit=2)), now=NOON)
    assert verdict.wake_at == noon(1)


class TestMissed:
    def test_fire_once_fires_for_the_latest_and_records_the_rest(self):
        verdict = due.judge(view(), now=noon(7.5))
        assert verdict.entries == (skipped(0, 6, "missed"), fired(7))
        assert verdict.next_due_at == noon(8)

    def test_one_missed_occurrence_is_named_by_its_time(self):
        verdict = due.judge(view(), now=noon(1))
        assert verdict.entries == (skipped(0, 0, "missed"), fired(1))
        assert verdict.entries[0].cause == identity.due_cause(NOON)

    @pytest.mark.parametrize(("late", "fires"), [(60, True), (61, False)])
    def test_skip_fires_only_within_the_threshold(self, late, fires):
        hourly = view(timing=Timing(cadence=Every(3600)), misfire=Misfire(policy="skip"))
        verdict = due.judge(hourly, now=NOON + timedelta(seconds=late))
        assert verdict.entries == ((fired(0),) if fires else (skipped(0, 0, "missed"),))
        assert verdict.next_due_at == noon(60)

    def test_the_threshold_is_a_setting(self):
        patient = Misfire(policy="skip", threshold_seconds=600)
        hourly = view(timing=Timing(cadence=Every(3600)), misfire=patient)
        assert due.judge(hourly, now=noon(10)).entries == (fired(0),)

    def test_catch_up_fires_the_last_ones_one_after_the_other(self):
        verdict = due.judge(view(misfire=Misfire(policy="catch_up", limit=3)), now=noon(7.5))
        assert verdict.entries == (skipped(0, 4, "missed"), fired(5), owed(6), owed(7))
        assert (verdict.next_due_at, verdict.wake_at) == (noon(8), None)

    @pytest.mark.parametrize(("slots", "cancelled"), [((), False), ((0,), True)])
    def test_fires_of_a_catch_up_do_not_cancel_each_other(self, slots, cancelled):
        behind = view(misfire=Misfire(policy="catch_up", limit=3), overlap=CANCEL, slots=slots)
        verdict = due.judge(behind, now=noon(2.5))
        first = owed(0) if slots else fired(0)
        assert verdict.entries == (first, owed(1), owed(2))
        assert verdict.cancel_running is cancelled

    def test_as_many_of_them_run_at_once_as_may(self):
        two = Overlap(policy="allow", limit=2)
        verdict = due.judge(
            view(misfire=Misfire(policy="catch_up", limit=3), overlap=two), now=noon(2.5)
        )
        assert verdict.entries == (fired(0), fired(1, slot=1), owed(2))

    def test_catch_up_of_all_there_were(self):
        verdict = due.judge(view(misfire=Misfire(policy="catch_up", limit=50)), now=noon(1.5))
        assert verdict.entries == (fired(0), owed(1))

    def test_catch_up_queues_nothing_in_ordinary_times(self):
        busy = view(misfire=Misfire(policy="catch_up", limit=5), slots=(0,))
        assert due.judge(busy, now=NOON).entries == (skipped(0, 0, "still_outstanding"),)

    def test_years_of_outage_are_judged_at_once(self):
        second = Timing(cadence=Every(1))
        verdict = due.judge(view(timing=second), now=NOON + timedelta(days=2000))
        assert verdict.entries[-1].first_due_at == NOON + timedelta(days=2000)


class TestPauses:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"hold": "group_disabled"}, "group_disabled"),
            ({"hold": "manifest_disabled", "slots": (0,)}, "manifest_disabled"),
            ({"hold": "blocked_by_dead_letter"}, "blocked_by_dead_letter"),
            ({"slots": (0,)}, "still_outstanding"),
            ({"slots": (0, 1), "overlap": Overlap(policy="allow", limit=2)}, "still_outstanding"),
            (
                {"slots": (0,), "overlap": QUEUE_ONE, "owed": (Owed(cause="x"),)},
                "one_already_waits",
            ),
            ({"slots": (0,), "overlap": CANCEL, "owed": (Owed(cause="x"),)}, "one_already_waits"),
        ],
    )
    def test_a_pause_has_a_reason_and_no_wake_time(self, changes, reason):
        paused = view(**changes)
        assert due.pause(paused) == reason
        assert due.wake_at(paused) is None
        after, entries = due.skip_missed_during_pause(paused, reason, until=noon(7.5))
        assert entries == [skipped(0, 7, reason)]
        assert after.next_due_at == noon(8)

    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"slots": (0,), "overlap": QUEUE_ONE},
            {"slots": (0,), "overlap": CANCEL},
            {"slots": (1,), "overlap": Overlap(policy="allow", limit=2)},
        ],
    )
    def test_no_pause_while_something_can_be_decided(self, changes):
        assert due.pause(view(**changes)) is None
        assert due.wake_at(view(**changes)) == NOON

    def test_a_pause_in_which_nothing_came_due_leaves_no_trace(self):
        before = view(slots=(0,))
        assert due.skip_missed_during_pause(before, "still_outstanding", until=noon(-1)) == (
            before,
            [],
        )

    def test_due_times_after_the_pause_are_judged_as_missed(self):
        """The work ended at five past, and its outcome arrived at ten past, after an outage."""
        after, entries = due.skip_missed_during_pause(
            view(slots=(0,)), "still_outstanding", until=noon(5)
        )
        verdict = due.judge(view(next_due_at=after.next_due_at), now=noon(10))
        assert entries == [skipped(0, 5, "still_outstanding")]
        assert verdict.entries == (skipped(6, 9, "missed"), fired(10))


class TestOverlap:
    def test_queue_one_lets_one_wait(self):
        busy = view(slots=(0,), overlap=QUEUE_ONE)
        verdict = due.judge(busy, now=NOON)
        assert (verdict.entries, verdict.cancel_running) == ((owed(0),), False)
        assert verdict.wake_at is None

    def test_cancel_running_asks_for_it_and_lets_one_wait(self):
        verdict = due.judge(view(slots=(0,), overlap=CANCEL), now=NOON)
        assert (verdict.entries, verdict.cancel_running) == ((owed(0),), True)

    def test_allow_takes_the_lowest_free_slot(self):
        three = Overlap(policy="allow", limit=3)
        verdict = due.judge(view(slots=(0, 2), overlap=three), now=NOON)
        assert verdict.entries == (fired(0, slot=1),)
        assert verdict.wake_at is None

    def test_pending_triggers_go_first(self):
        waiting = (Owed(cause="due:a"), Owed(cause="trigger:b"))
        verdict = due.judge(view(owed=waiting, next_due_at=noon(1)), now=NOON)
        assert verdict.releases == (Release(cause="due:a", slot=0),)
        assert verdict.wake_at is None

    def test_a_due_time_does_not_overtake_pending_triggers(self):
        waiting = (Owed(cause="due:a"),)
        verdict = due.judge(view(owed=waiting), now=NOON)
        assert verdict.releases == (Release(cause="due:a", slot=0),)
        assert verdict.entries == (skipped(0, 0, "still_outstanding"),)


class TestHolds:
    def test_a_disabled_manifest_queues_only_explicit_triggers(self):
        waiting = (Owed(cause="due:a"), Owed(cause="trigger:b", explicit=True))
        held = view(hold="manifest_disabled", owed=waiting, next_due_at=None)
        assert due.judge(held, now=NOON).releases == (Release(cause="trigger:b", slot=0),)

    @pytest.mark.parametrize("hold", ["manifest_disabled", "group_disabled", "paused"])
    def test_a_freed_slot_wakes_a_manifest_with_an_explicit_trigger(self, hold):
        trigger = Owed(cause="trigger:b", explicit=True)
        held = view(hold=hold, owed=(Owed(cause="due:a"), trigger), next_due_at=None)
        assert due.reschedule_wake(held, now=NOON).wake_at == NOON
        assert due.reschedule_wake(structs.replace(held, slots=(0,)), now=NOON).wake_at is None
        assert (
            due.reschedule_wake(structs.replace(held, owed=held.owed[:1]), now=NOON).wake_at is None
        )

    def test_a_blocked_manifest_neither_wakes_nor_queues(self):
        waiting = (Owed(cause="trigger:b", explicit=True),)
        held = view(hold="blocked_by_dead_letter", owed=waiting, next_due_at=None)
        assert due.reschedule_wake(held, now=NOON).wake_at is None
        assert due.judge(held, now=NOON) == Verdict(manifest=MANIFEST)


class TestDependents:
    def child(self, **changes) -> ManifestView:
        fields = {
            "timing": Timing(cadence=Manual()),
            "next_due_at": None,
            "parent": WORK,
            "parent_success": 0,
        }
        return view(**(fields | changes))

    def test_a_success_fires_once(self):
        verdict = due.judge(self.child(parent_success=1), now=NOON)
        assert verdict == Verdict(manifest=MANIFEST, entries=(success(1),), seen_success=1)
        seen = self.child(parent_success=1, seen_success=1)
        assert due.judge(seen, now=NOON).entries == ()

    def test_successes_during_a_run_stay_owed_and_collapse_into_the_latest(self):
        busy = self.child(parent_success=5, seen_success=2, slots=(0,))
        assert due.judge(busy, now=NOON) == Verdict(manifest=MANIFEST, seen_success=2)
        free = self.child(parent_success=5, seen_success=2)
        verdict = due.judge(free, now=NOON)
        assert [entry.cause for entry in verdict.entries] == [
            f"successes:{WORK}:3/4",
            f"success:{WORK}:5",
        ]
        assert verdict.entries[0].reason == "collapsed_into_a_later_success"
        assert verdict.seen_success == 5

    @pytest.mark.parametrize(
        "held",
        [{"hold": "manifest_disabled"}, {"hold": "group_disabled", "also_disabled": True}],
        ids=["itself", "itself and its group"],
    )
    def test_a_disabled_dependent_lets_a_success_pass(self, held):
        verdict = due.judge(self.child(parent_success=2, **held), now=NOON)
        assert [(entry.cause, entry.decision, entry.reason) for entry in verdict.entries] == [
            (f"successes:{WORK}:1/2", "skipped", "manifest_disabled")
        ]
        assert verdict.seen_success == 2

    @pytest.mark.parametrize(
        ("changes", "decided"),
        [
            ({"slots": (0,)}, [("successes", "skipped"), ("success", "owed")]),
            ({"hold": "blocked_by_dead_letter"}, [("successes", "skipped"), ("success", "owed")]),
            ({"hold": "group_disabled"}, [("successes", "skipped"), ("success", "owed")]),
            ({"hold": "manifest_disabled"}, [("successes", "skipped")]),
            ({"seen_success": 5}, []),
        ],
        ids=["busy", "blocked", "group disabled", "disabled", "nothing new"],
    )
    def test_a_dependent_that_leaves_its_parent_keeps_the_latest_success(self, changes, decided):
        leaving = self.child(**({"parent_success": 5, "seen_success": 2} | changes))
        left, entries = due.leave_parent(leaving, now=NOON)
        assert left.seen_success == 5
        assert [(entry.cause.partition(":")[0], entry.decision) for entry in entries] == decided

    @pytest.mark.parametrize("hold", ["blocked_by_dead_letter", "group_disabled"])
    def test_a_held_dependent_keeps_its_pending_success(self, hold):
        held = self.child(parent_success=2, hold=hold)
        assert due.owes_success(held)
        assert due.judge(held, now=NOON) == Verdict(manifest=MANIFEST, seen_success=0)


REASONS = st.sampled_from(["still_outstanding", "manifest_disabled"])


@settings(max_examples=150, deadline=None)
@given(
    step=st.sampled_from([1, 7, 60, 3600, 5 * 3600]),
    jitter=st.sampled_from([0, 0, 5, 90]),
    looks=st.lists(st.integers(1, 30_000), min_size=1, max_size=12),
    pauses=st.lists(st.booleans(), min_size=12, max_size=12),
    misfire=st.sampled_from(
        [Misfire(), Misfire(policy="skip"), Misfire(policy="catch_up", limit=3)]
    ),
)
def test_every_due_time_is_decided_exactly_once(step, jitter, looks, pauses, misfire):
    """Holds for any interval between ticks, and any pauses."""
    every = Timing(cadence=Every(step))
    first = timing.next_due(every, NOON)
    manifest = view(
        timing=every, next_due_at=first, jitter_seconds=jitter, misfire=misfire, owed=()
    )
    now, entries = NOON, []
    for wait, paused in zip(looks, pauses, strict=False):
        now += timedelta(seconds=wait)
        if paused:
            manifest, skipped = due.skip_missed_during_pause(
                manifest, "manifest_disabled", until=now
            )
            entries += skipped
        else:
            verdict = due.judge(manifest, now=now)
            entries += verdict.entries
            manifest = view(
                timing=every,
                next_due_at=verdict.next_due_at,
                jitter_seconds=jitter,
                misfire=misfire,
            )
    covered, at = 0, first
    while at < manifest.next_due_at:
        matches = [entry for entry in entries if entry.first_due_at <= at <= entry.last_due_at]
        assert len(matches) == 1, f"{at} is decided {len(matches)} times"
        covered, at = covered + 1, timing.next_due(every, at)
        if covered > 300:
            break
    assert len({entry.cause for entry in entries}) == len(entries)


class TestRest:
    def test_it_decides_nothing_and_returns_its_wake_time(self):
        verdict = due.reschedule_wake(view(), now=noon(60))
        assert verdict == Verdict(manifest=MANIFEST, next_due_at=NOON, wake_at=NOON)

    def test_a_new_spaced_manifest_is_due_now(self):
        new = view(timing=Timing(cadence=Spaced(600)), next_due_at=None)
        assert due.reschedule_wake(new, now=NOON) == Verdict(
            manifest=MANIFEST, next_due_at=NOON, wake_at=NOON
        )

    @pytest.mark.parametrize(
        "changes", [{"owed": (Owed(cause="x"),)}, {"parent": WORK, "parent_success": 1}]
    )
    def test_pending_triggers_wake_it_now(self, changes):
        waiting = view(timing=Timing(cadence=Manual()), next_due_at=None, **changes)
        assert due.reschedule_wake(waiting, now=NOON).wake_at == NOON
        assert due.reschedule_wake(structs.replace(waiting, slots=(0,)), now=NOON).wake_at is None
        held = structs.replace(waiting, hold="manifest_disabled")
        assert due.reschedule_wake(held, now=NOON).wake_at is None
