"""When manifests that are declared are due first, and one-shots whose time is past."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.define.definitions import ManifestDefinition
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Once

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def first_due(definition: ManifestDefinition, now: datetime) -> datetime | None:
    """When a new or retimed manifest is due first; a one-shot may be a little late."""
    after = now
    if isinstance(definition.timing.cadence, Once):
        after = now - timedelta(seconds=definition.misfire.threshold_seconds)
    return timing.next_due(definition.timing, after)


def past_shots(definitions: Sequence[ManifestDefinition], now: datetime) -> dict[str, datetime]:
    """The one-shots that come too late to be fired, and when they were due."""
    found = {}
    for one in definitions:
        if isinstance(one.timing.cadence, Once) and first_due(one, now) is None:
            at = timing.latest_due(one.timing, _LONG_AGO, now)
            if at is not None:
                found[one.external_id] = at
    return found


def past_in_words(definitions: Sequence[ManifestDefinition], now: datetime) -> list[str]:
    """The same, told one by one."""
    return [
        f"manifest {external_id!r} was to fire once at {at:%Y-%m-%d %H:%M:%S} UTC, which is past: "
        "it does not fire, unless it is given a later time"
        for external_id, at in past_shots(definitions, now).items()
    ]


def late_in_words(rows: Sequence[Any]) -> list[str]:
    """One-shots that were enabled after their time, told one by one."""
    return [
        f"manifest {row['external_id']!r} is a one-shot whose time has passed while it was "
        "disabled: it does not fire, unless it is given a later time"
        for row in rows
    ]
