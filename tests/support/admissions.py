"""Candidates of the gate, and its answers."""

from collections import Counter
from datetime import UTC, datetime
from uuid import UUID

from headway_decisions.capacity.capacity import Candidate, Load, Room, admit
from headway_decisions.capacity.limits import Limits
from headway_decisions.capacity.slots import Worker

NOW = datetime(2027, 3, 28, 1, 15, tzinfo=UTC)
FLEET = [Worker(jobs=("etl", "mail"), slots=100)]


def wants(count: int, *, start: int = 0, **fields) -> list[Candidate]:
    stated = {"group": "g", "job": "etl", **fields}
    return [Candidate(work=UUID(int=start + n), **stated) for n in range(count)]


def load_of(active, leases=None) -> Load:
    """Return the load of leases with one group each; `active` counts them by group and job."""
    groups: Counter[str] = Counter()
    jobs: Counter[str] = Counter()
    for (group, job), number in active.items():
        groups[group] += number
        jobs[job] += number
    return Load(groups=groups, jobs=jobs, leases_on_fleet=leases or {})


def answers(
    candidates, *, active=None, leases=None, max_active=100, fleet=FLEET, more=False, **limits
):
    load = load_of(active or {}, leases)
    room = Room(Limits(max_active=max_active, **limits), load, fleet, now=NOW)
    return admit(candidates, room, more=more)
