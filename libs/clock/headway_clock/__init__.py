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
    """Return a random id."""
    return uuid.uuid4()


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
