"""A worker's memory of finished leases."""

import weakref
from uuid import UUID

from headway.worker import finished_leases
from headway.worker.finished_leases import FinishedLeases
from headway.worker.leases import Lease
from headway_contract.orders import OrderedRun, RunDispatched


class Input:
    """A placeholder of a large input."""


def _lease(number: int, *, size: int = 100, given: object = None) -> Lease:
    name = UUID(int=number)
    run = OrderedRun(
        run=name, work=name, attempt=1, attempts=1, group="ops", cause="x", input=given
    )
    order = RunDispatched(lease=name, token="t", job="job", runs=[run])
    lease = Lease(None, order, worker="w", nonce="n", host="here")
    lease.size = size
    return lease


def test_the_id_of_a_lease_is_kept_longer_than_its_events(monkeypatch):
    monkeypatch.setattr(finished_leases, "_MOST_LEASES", 2)
    monkeypatch.setattr(finished_leases, "_MOST_NAMES", 3)
    kept = FinishedLeases(broker=None)
    for number in range(4):
        kept.add(_lease(number))
    assert [UUID(int=number) in kept for number in range(4)] == [False, True, True, True]
    assert list(kept._leases) == [UUID(int=2), UUID(int=3)]


def test_only_the_id_of_a_large_lease_is_kept():
    kept = FinishedLeases(broker=None)
    kept.add(_lease(1, size=finished_leases._MOST_BYTES + 1))
    assert UUID(int=1) in kept
    assert not kept._leases


def test_inputs_are_let_go():
    kept, given = FinishedLeases(broker=None), Input()
    seen = weakref.ref(given)
    kept.add(_lease(1, given=given))
    del given
    assert UUID(int=1) in kept._leases
    assert seen() is None
