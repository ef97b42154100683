"""Leases of several runs: their size, and how they count against limits."""

from typing import ClassVar

import pytest
from headway_contract.fields import Rate
from headway_decisions.capacity.capacity import Admitted
from headway_decisions.capacity.limits import GroupLimit, JobLimit
from headway_decisions.capacity.packing import (
    MOST_BYTES,
    MOST_RUNS,
    lease_size,
    spread,
    typical_seconds,
)
from headway_decisions.capacity.slots import Worker
from support.admissions import answers, wants


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [
        ([], None),
        ([0.1] * 9, None),
        ([0.1] * 10, 0.1),
        ([0.001] * 95 + [10.0] * 5, 0.50095),
        ([0.001] * 80 + [0.2] * 20, 0.2),
    ],
)
def test_rare_slow_runs_and_many_of_them_count(durations, seconds):
    assert typical_seconds(durations) == (None if seconds is None else pytest.approx(seconds))


class TestLeasesOfSeveralRuns:
    JOBS: ClassVar = {"etl": JobLimit(batch=3)}

    def leases(self, candidates, *, more=True, **stated) -> list[int]:
        """Return the lease of each candidate; by default more work waits, so leases are filled."""
        verdicts = answers(candidates, jobs=self.JOBS, more=more, **stated)
        return [verdict.lease if isinstance(verdict, Admitted) else -1 for verdict in verdicts]

    def test_runs_of_a_job_share_up_to_its_batch(self):
        assert self.leases(wants(7)) == [0, 0, 0, 1, 1, 1, 2]

    def test_other_jobs_and_other_ways_to_lose_contact_do_not_share(self):
        mixed = [
            *wants(2),
            *wants(1, job="mail", start=10),
            *wants(1, on_lost_contact="continue", start=20),
            *wants(1, start=30),
            *wants(1, job="mail", start=40),
        ]
        assert self.leases(mixed) == [0, 0, 1, 2, 0, 3]

    def test_exclusive_work_has_its_own_lease(self):
        mixed = [*wants(1), *wants(1, exclusive_lease=True, start=10), *wants(1, start=20)]
        assert self.leases(mixed) == [0, 1, 0]

    def test_a_lease_is_bounded_by_bytes(self):
        assert self.leases(wants(3, size=MOST_BYTES // 2)) == [0, 0, 1]
        assert self.leases(wants(2, size=2 * MOST_BYTES)) == [0, 1]

    def test_a_slot_takes_a_lease_however_many_runs_it_has(self):
        fleet = [Worker(jobs=("etl",), slots=1)]
        assert self.leases(wants(7), fleet=fleet) == [0, 0, 0, 1, 1, 1, -1]

    @pytest.mark.parametrize(
        ("waiting", "free", "runs"),
        [(10, 10, 1), (10, 4, 3), (10, 5, 2), (11, 5, 3), (1, 5, 1), (99, 5, 5), (3, 0, 5)],
    )
    def test_a_lease_takes_its_share_of_the_waiting_work(self, waiting, free, runs):
        assert spread(5, waiting=waiting, slots=free) == runs

    @pytest.mark.parametrize(
        ("waiting", "seconds", "runs"),
        [
            (300, 0.0001, 100),
            (300, 0.001, 10),
            (800, 0.001, 16),
            (300, 0.02, 6),
            (9000, 0.0001, 180),
        ],
    )
    def test_very_short_runs_use_fewer_slots(self, waiting, seconds, runs):
        size = lease_size(None, 0.0001)
        assert spread(size, waiting=waiting, slots=50, seconds=seconds) == runs

    @pytest.mark.parametrize(
        ("stated", "seconds", "runs"),
        [
            (None, None, 1),
            (20, None, 20),
            (None, 0.0, MOST_RUNS),
            (None, 0.0001, MOST_RUNS),
            (None, 0.01, 7),
            (5, 0.01, 5),
            (20, 0.01, 7),
            (200, 0.0001, 200),
            (1, 0.0001, 1),
            (None, 0.075, 1),
            (None, 3600.0, 1),
            (20, 3600.0, 1),
        ],
    )
    def test_a_lease_has_as_many_runs_as_fit_into_its_time(self, stated, seconds, runs):
        assert lease_size(stated, seconds) == runs

    def test_no_slot_stays_free_while_others_have_several(self):
        fleet = [Worker(jobs=("etl", "mail"), slots=2), Worker(jobs=("etl",), slots=2)]
        assert self.leases(wants(4), more=False, fleet=fleet) == [0, 1, 2, 3]
        assert self.leases(wants(6), more=False, fleet=fleet) == [0, 0, 1, 1, 2, 2]
        busy = {"etl": 1, "mail": 1}
        assert self.leases(wants(4), more=False, fleet=fleet, leases=busy) == [0, 0, 1, 1]
        full = {"etl": 4}
        assert self.leases(wants(4), more=False, fleet=fleet, leases=full) == [0, 0, 0, 1]

    def test_a_slot_that_runs_fewer_of_a_job_counts_as_such(self):
        fleet = [Worker(jobs=("etl",), slots=10, concurrency={"etl": 2})]
        assert self.leases(wants(4), more=False, fleet=fleet) == [0, 0, 1, 1]

    def test_waiting_work_spreads_over_as_many_slots_as_its_limits_allow(self):
        one, two = GroupLimit(max_active=1), GroupLimit(max_active=2)
        assert self.leases(wants(3), more=False, groups={"g": one}) == [0, 0, 0]
        assert self.leases(wants(4), more=False, groups={"g": two}) == [0, 0, 1, 1]
        assert self.leases(wants(4), more=False, max_active=2) == [0, 0, 1, 1]

    def test_a_lease_counts_once_against_every_limit(self):
        assert self.leases(wants(7), max_active=2) == [0, 0, 0, 1, 1, 1, -1]
        group = {"g": GroupLimit(max_active=1)}
        assert self.leases(wants(4), groups=group) == [0, 0, 0, -1]
        mixed = [*wants(1), *wants(1, group="h", start=1), *wants(1, group="h", start=2)]
        full = {"h": GroupLimit(max_active=0)}
        assert self.leases(mixed, groups=full) == [0, -1, -1]
        assert self.leases(mixed, groups={"h": GroupLimit(max_active=1)}) == [0, 0, 0]

    def test_a_lease_counts_once_against_a_key(self):
        assert self.leases(wants(4, key="k")) == [0, 0, 0, -1]
        assert self.leases(wants(4, key="k", key_limit=2)) == [0, 0, 0, 1]
        assert self.leases(wants(2, key="k", key_active=1)) == [-1, -1]

    def test_rates_count_runs(self):
        rate = Rate(count=2, period_seconds=60)
        assert self.leases(wants(3), groups={"g": GroupLimit(rate=rate)}) == [0, 0, -1]
