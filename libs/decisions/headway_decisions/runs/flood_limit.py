"""How many messages one sender may send: a bucket of tokens for each, in bounded memory."""

from collections.abc import Hashable

from msgspec import Struct


class Allowance(Struct, frozen=True, kw_only=True):
    """So many messages at once, and so many a second in the long run."""

    burst: float
    per_second: float


class FloodLimit:
    """Admits messages by sender as long as each keeps within its allowance."""

    def __init__(self, allowance: Allowance, *, most_senders: int = 20_000) -> None:
        self._allowance = allowance
        self._most = most_senders
        # Tokens left of each sender, and when they were counted.
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def admits(self, sender: Hashable, now: float) -> bool:
        """Whether one more message is within the allowance; `now` is in seconds and only rises."""
        burst, per_second = self._allowance.burst, self._allowance.per_second
        tokens, counted_at = self._buckets.get(sender, (burst, now))
        tokens = min(burst, tokens + (now - counted_at) * per_second)
        admitted = tokens >= 1.0
        self._buckets[sender] = (tokens - 1.0 if admitted else tokens, now)
        if len(self._buckets) > self._most:
            self._forget(now)
        return admitted

    def _forget(self, now: float) -> None:
        """Forget senders whose bucket is full again; all of them if that is not enough."""
        refill = self._allowance.burst / self._allowance.per_second
        kept = {key: one for key, one in self._buckets.items() if now - one[1] < refill}
        self._buckets = kept if len(kept) < self._most else {}
