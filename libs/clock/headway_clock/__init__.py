"""The one place that reads clocks and makes chance.

Decisions take time and chance as arguments; what calls them gets both from here (or,
inside a database transaction, from PostgreSQL). Lint bans the standard library's clocks
and random sources everywhere else, so a test that owns this module owns them all.
"""

import random
import secrets
import time
import uuid
from datetime import UTC, datetime

__all__ = [
    "jitter",
    "monotonic",
    "new_id",
    "new_nonce",
    "new_secret",
    "new_token",
    "utc_now",
]


def utc_now() -> datetime:
    """The wall clock of this machine, aware, in UTC."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never steps back, for local timers only."""
    return time.monotonic()


def new_id() -> uuid.UUID:
    """A fresh random identifier."""
    return uuid.uuid4()


def new_token() -> str:
    """A capability of 128 random bits."""
    return secrets.token_hex(16)


def new_secret() -> str:
    """256 random bits, as letters and digits that need no quotes anywhere."""
    return secrets.token_urlsafe(32)


def new_nonce() -> str:
    """Names one process among those that share a worker's name."""
    return secrets.token_hex(8)


def jitter(fraction: float = 1.0) -> float:
    """A number from 0 up to `fraction`, evenly spread."""
    return random.random() * fraction  # noqa: S311 - spreads retries, guards nothing
