"""The only module that reads clocks and random sources.

Decisions take time and randomness as arguments; their callers get both from here or, inside a
transaction, from PostgreSQL. Lint bans other sources, so that a test can replace all of them here.
"""

import random
import secrets
import time
import uuid
from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the wall clock time of this machine in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Return seconds on a clock that never goes back, for local timers only."""
    return time.monotonic()


def new_id() -> uuid.UUID:
    """Return an id of version 7: the time in milliseconds, then random bits.

    Ids of one moment are neighbours in an index, so that writing them touches few pages.
    """
    milliseconds = time.time_ns() // 1_000_000
    bits = secrets.randbits(74)
    return uuid.UUID(
        int=milliseconds << 80 | 0x7 << 76 | (bits >> 62) << 64 | 0b10 << 62 | bits & (1 << 62) - 1
    )


def new_token() -> str:
    """Return a secret of 128 random bits, for a lease."""
    return secrets.token_hex(16)


def new_secret() -> str:
    """Return a secret of 256 random bits, in characters that need no quotes."""
    return secrets.token_urlsafe(32)


def new_nonce() -> str:
    """Return a random text that distinguishes processes with the same worker name."""
    return secrets.token_hex(8)


def jitter(fraction: float = 1.0) -> float:
    """Return a random number from 0 up to `fraction`, uniformly distributed."""
    return random.random() * fraction  # noqa: S311 - spreads retries; not a secret
