"""Decide how many runs of a job share a lease.

A lease costs the same whether it has one run or a hundred, so the runs of short jobs share one. A
lease is meant to take some tens of milliseconds: short enough that more urgent work does not wait
noticeably, and long enough that its cost does not matter.
"""

import statistics
from collections.abc import Sequence

# The work in one lease, in seconds.
LEASE_SECONDS = 0.075
# Work below which a lease for another idle slot costs more time than it saves.
SHORTEST_LEASE_SECONDS = 0.01
# Most runs in a lease, unless the job states a number.
MOST_RUNS = 250
# Bytes of inputs in one lease: well under the largest message of a broker.
MOST_BYTES = 256 * 1024
# Time after which a worker hands back the runs of a lease that have not begun.
HAND_BACK_SECONDS = 2.0
# The runs by which the duration of a job is measured; with fewer than the least it is unknown.
RECENT_RUNS = 100
_LEAST_RUNS = 10


def lease_size(stated: int | None, seconds: float | None) -> int:
    """Return the most runs in a lease of a job whose runs take `seconds`; `None` if unknown.

    A job of unknown duration gets one run, or as many as it states.
    """
    if seconds is None:
        return 1 if stated is None else stated
    return min(_fitting(LEASE_SECONDS, seconds), MOST_RUNS if stated is None else stated)


def spread(size: int, *, waiting: int, slots: int, seconds: float | None = None) -> int:
    """Return the size of leases with which waiting work uses every idle slot that is worth it."""
    if slots <= 0:
        return size
    least = 1 if seconds is None else _fitting(SHORTEST_LEASE_SECONDS, seconds)
    return min(size, max(least, -(-waiting // slots)))


def _fitting(within: float, seconds: float) -> int:
    """Return how many runs of some seconds fit into a time; at least one."""
    return max(1, int(within / max(seconds, LEASE_SECONDS / 10_000)))


def typical_seconds(durations: Sequence[float]) -> float | None:
    """Return the 90th percentile of recent runs or their mean, whichever is longer."""
    if len(durations) < _LEAST_RUNS:
        return None
    return max(statistics.fmean(durations), sorted(durations)[len(durations) * 9 // 10])
