"""Cadences for tests on the real clock."""

from typing import Any

from headway import When, every


def when_made_due(**options: Any) -> When:
    """Comes due when the test makes it due, and not because an hour or a day ends just then."""
    return every(hours=1, start="2099-01-01", **options)
