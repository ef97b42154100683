"""Jitter: never early, deterministic, and always before the next due time."""

from datetime import timedelta

import pytest
from headway_decisions.firing import due, jitter
from headway_decisions.timing.cadence import Every
from headway_decisions.timing.timing import Timing
from msgspec import structs
from support.judged import NAME, NOON, fired, noon, view


class TestJitter:
    def test_it_is_never_early_and_always_the_same(self):
        moments = {jitter.draw_jitter(NAME, noon(at), 30) for at in range(200)}
        late = {(jitter.draw_jitter(NAME, noon(at), 30) - noon(at)).seconds for at in range(500)}
        assert late == set(range(31)), "whole seconds from none to all of it"
        assert moments == {jitter.draw_jitter(NAME, noon(at), 30) for at in range(200)}

    def test_it_is_another_for_another_manifest(self):
        late = [jitter.draw_jitter(f"m-{number}", NOON, 30) for number in range(500)]
        assert len(set(late)) == 31
        assert max(late.count(second) for second in late) < 40, (
            "no second has many more than others"
        )

    def test_it_is_the_same_in_every_release(self):
        """A change would invalidate users' tests and earlier plans."""
        late = [
            (jitter.draw_jitter("nightly", noon(at), 600) - noon(at)).seconds for at in range(4)
        ]
        assert late == [520, 403, 27, 569]

    def test_a_due_time_waits_for_its_jitter(self):
        jittery = view(jitter_seconds=50)
        wake = due.wake_at(jittery)
        assert wake == jitter.draw_jitter(NAME, NOON, 50)
        assert wake > NOON
        assert due.judge(jittery, now=wake - timedelta(seconds=1)).entries == ()
        assert due.judge(jittery, now=wake).entries == (fired(0),)

    def test_jitter_longer_than_the_step_delays_no_later_fire_and_loses_none(self):
        """Each due time fires before the next comes."""
        jittery = view(jitter_seconds=300)
        decided, late = [], set()
        for at in range(60):
            wake = due.wake_at(jittery)
            assert noon(at) <= wake < noon(at + 1)
            late.add(wake - noon(at))
            verdict = due.judge(jittery, now=wake)
            decided += verdict.entries
            jittery = structs.replace(jittery, next_due_at=verdict.next_due_at)
        assert decided == [fired(at) for at in range(60)]
        assert len(late) > 10, "it is still spread"

    def test_jitter_slightly_shorter_than_the_step_stays_below_it(self):
        minutely = Timing(cadence=Every(seconds=60))
        for at in range(1000):
            assert jitter.fire_at(minutely, NAME, noon(at), 59.5) < noon(at + 1)

    @pytest.mark.parametrize("seconds", [1, 2])
    def test_no_jitter_without_room_for_it(self, seconds):
        quick = Timing(cadence=Every(seconds=seconds))
        assert jitter.fire_at(quick, NAME, NOON, 30) == NOON
