"""Decisions about manifests with spaced, one-shot and excluded times, and about paused ones."""

from uuid import UUID

import pytest
from headway_decisions.firing import due, jitter, manifest_state
from headway_decisions.firing.manifest_state import (
    ManifestView,
    Misfire,
    Verdict,
)
from headway_decisions.timing.cadence import Every, Once, Spaced
from headway_decisions.timing.calendar import ExcludedTimes, Filters
from headway_decisions.timing.timing import Timing
from msgspec import structs
from support.judged import (
    MANIFEST,
    NAME,
    NOON,
    fired,
    noon,
    skipped,
    view,
)


class TestSpaced:
    def spaced(self, **changes) -> ManifestView:
        fields = {"timing": Timing(cadence=Spaced(600)), "next_due_at": None}
        return view(**(fields | changes))

    def test_a_new_manifest_fires_at_once(self):
        verdict = due.judge(self.spaced(), now=NOON)
        assert verdict.entries == (fired(0),)
        assert (verdict.next_due_at, verdict.wake_at) == (None, None)

    def test_it_counts_from_the_end_of_its_work(self):
        verdict = due.judge(self.spaced(settled_at=NOON), now=noon(1))
        assert verdict.entries == ()
        assert (verdict.next_due_at, verdict.wake_at) == (noon(10), noon(10))

    def test_while_its_work_is_under_way_there_is_no_due_time(self):
        verdict = due.judge(self.spaced(settled_at=NOON, slots=(0,)), now=noon(60))
        assert verdict == Verdict(manifest=MANIFEST)

    def test_a_pause_does_not_skip_it(self):
        paused = self.spaced(next_due_at=NOON, hold="manifest_disabled")
        assert due.skip_missed_during_pause(paused, "manifest_disabled", until=noon(60)) == (
            paused,
            [],
        )

    def test_a_filter_delays_it(self):
        at_night = Timing(cadence=Spaced(600), filters=Filters(between="22:00-02:00"))
        verdict = due.judge(self.spaced(timing=at_night, settled_at=NOON), now=noon(1))
        assert verdict.next_due_at == NOON.replace(hour=22)

    def test_it_wakes_only_after_its_jitter(self):
        shaken = self.spaced(settled_at=NOON, jitter_seconds=300.0)
        fires_at = jitter.draw_jitter(NAME, noon(10), 300)
        assert noon(10) < fires_at < noon(15)
        assert due.judge(shaken, now=noon(1)).wake_at == fires_at
        ripe = structs.replace(shaken, next_due_at=noon(10))
        assert due.judge(ripe, now=noon(10)).wake_at == fires_at
        assert due.judge(ripe, now=fires_at).entries == (fired(10),)

    @pytest.mark.parametrize("settled_at", [noon(-600), None], ids=["long ago", "never"])
    def test_a_manifest_with_another_cadence_before_is_not_due_in_the_past(self, settled_at):
        assert due.reschedule_wake(self.spaced(settled_at=settled_at), now=NOON).next_due_at == NOON

    @pytest.mark.parametrize(
        ("late", "due_at"), [(0.5, 29.5), (30, 60 * 24)], ids=["a moment late", "after a pause"]
    )
    def test_a_late_fire_waits_for_the_next_window(self, late, due_at):
        at_noon = Timing(cadence=Spaced(600), filters=Filters(between="12:00-12:30"))
        standing = self.spaced(timing=at_noon, settled_at=noon(19.5), next_due_at=noon(29.5))
        verdict = due.judge(standing, now=noon(29.5 + late))
        assert verdict.entries == ((fired(29.5),) if late < 1 else ())
        assert verdict.next_due_at == (None if late < 1 else noon(due_at))

    def test_a_late_fire_starts_at_once_if_allowed(self):
        standing = self.spaced(settled_at=noon(-10), next_due_at=NOON)
        assert due.judge(standing, now=noon(500)).entries == (fired(0),)


def test_a_one_shot_fires_even_if_it_was_missed_and_never_again():
    once = Timing(cadence=Once("2027-05-01 12:00"))
    verdict = due.judge(view(timing=once), now=noon(60 * 24))
    assert (verdict.entries, verdict.next_due_at) == ((fired(0),), None)


class TestExclusions:
    LUNCH = Timing(cadence=Every(60), exclusions=(ExcludedTimes("12:00-12:30"),))

    def test_it_sleeps_through_an_exclusion(self):
        assert due.wake_at(view(timing=self.LUNCH)) == noon(30)

    def test_the_skip_is_recorded_when_it_wakes(self):
        verdict = due.judge(view(timing=self.LUNCH), now=noon(30))
        [skip, fire] = verdict.entries
        assert (skip.first_due_at, skip.last_due_at) == (noon(0), noon(29))
        assert skip.reason.startswith("excluded: ")
        assert fire == fired(30)

    def test_an_outage_that_reaches_into_it_fires_for_the_last_time_before(self):
        before = view(timing=self.LUNCH, next_due_at=noon(-5))
        verdict = due.judge(before, now=noon(10))
        assert [(entry.first_due_at, entry.decision) for entry in verdict.entries] == [
            (noon(-5), "skipped"),
            (noon(-1), "queued"),
            (noon(0), "skipped"),
        ]
        assert verdict.entries[0].reason == "missed"
        assert verdict.entries[2].reason.startswith("excluded")
        assert verdict.next_due_at == noon(11)


class TestWindows:
    """During a pause nothing is decided; afterwards the misfire policy applies."""

    WINDOW = manifest_state.Window(pause=UUID(int=1), since=noon(-1), reason="new disks")
    OVER = structs.replace(WINDOW, ended_at=noon(7.2))

    def test_nothing_is_decided_in_it(self):
        paused = view(hold="paused", windows=(self.WINDOW,))
        verdict = due.judge(paused, now=noon(7.5))
        assert verdict == Verdict(manifest=MANIFEST, next_due_at=NOON, wake_at=None)
        assert due.pause(paused) == "paused"

    @pytest.mark.parametrize(
        ("misfire", "entries"),
        [
            (Misfire(), (skipped(0, 6, "paused: new disks"), fired(7))),
            (
                Misfire(policy="skip", threshold_seconds=1),
                (skipped(0, 7, "paused: new disks"),),
            ),
        ],
    )
    def test_after_it_the_misfire_policy_decides(self, misfire, entries):
        verdict = due.judge(view(misfire=misfire, windows=(self.OVER,)), now=noon(7.5))
        assert verdict.entries == entries
        assert verdict.next_due_at == noon(8)

    def test_later_misses_are_not_attributed_to_the_pause(self):
        later = view(next_due_at=noon(9), windows=(self.OVER,))
        assert due.judge(later, now=noon(11)).entries == (skipped(9, 10, "missed"), fired(11))

    def test_explicit_triggers_pass(self):
        trigger = manifest_state.Owed(cause="trigger:x", explicit=True)
        paused = view(hold="paused", windows=(self.WINDOW,), owed=(trigger,))
        assert [release.cause for release in due.queue_owed(paused, now=noon(1)).releases] == [
            "trigger:x"
        ]

    def test_a_change_of_timing_skips_the_due_times_of_the_pause(self):
        paused = view(hold="paused", windows=(self.WINDOW,))
        after, entries = due.skip_missed_during_pause(paused, manifest_state.PAUSED, until=noon(3))
        assert entries == [skipped(0, 3, "paused: new disks")]
        assert after.next_due_at == noon(4)
