"""What a worker remembers of leases that have ended."""

from types import SimpleNamespace
from uuid import UUID

from headway.worker import finished
from headway.worker.finished import Finished


def _lease(number: int, *, size: int = 100) -> SimpleNamespace:
    return SimpleNamespace(order=SimpleNamespace(lease=UUID(int=number)), size=size)


def test_a_lease_is_known_by_name_longer_than_what_was_said_of_it(monkeypatch):
    monkeypatch.setattr(finished, "_MOST_LEASES", 2)
    monkeypatch.setattr(finished, "_MOST_NAMES", 3)
    kept = Finished(broker=None)
    for number in range(4):
        kept.add(_lease(number))
    assert [UUID(int=number) in kept for number in range(4)] == [False, True, True, True]
    assert list(kept._leases) == [UUID(int=2), UUID(int=3)]


def test_of_a_lease_of_which_much_was_said_only_the_name_is_kept():
    kept = Finished(broker=None)
    kept.add(_lease(1, size=finished._MOST_BYTES + 1))
    assert UUID(int=1) in kept
    assert not kept._leases
