"""First due times, and one-shots whose time is past."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from headway.define.definitions import ManifestDefinition
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Once
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import utc

from headway_scheduler.fire.preview import first_ahead

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def first_due(definition: ManifestDefinition, now: datetime) -> datetime | None:
    """Return the first due time of a new timing; a one-shot may be late by its threshold."""
    after = now
    if isinstance(definition.timing.cadence, Once):
        after = now - timedelta(seconds=definition.misfire.threshold_seconds)
    return timing.next_due(definition.timing, after)


def past_shots(definitions: Sequence[ManifestDefinition], now: datetime) -> dict[str, datetime]:
    """Return the one-shots that are declared too late, with their due times."""
    return {
        manifest.external_id: at
        for manifest in definitions
        if isinstance(manifest.timing.cadence, Once)
        and first_due(manifest, now) is None
        and (at := timing.latest_due(manifest.timing, _LONG_AGO, now)) is not None
    }


def past_messages(definitions: Sequence[ManifestDefinition], now: datetime) -> list[str]:
    """Warn about one-shots that are declared too late."""
    return [
        f"manifest {external_id!r} was to fire once at {utc(at)}, which is past: it does not fire, "
        "unless it is given a later time"
        for external_id, at in past_shots(definitions, now).items()
    ]


def late_messages(rows: Sequence[Any]) -> list[str]:
    """Warn about one-shots that were enabled after their time."""
    return [
        f"manifest {row['external_id']!r} is a one-shot whose time has passed while it was "
        "disabled: it does not fire, unless it is given a later time"
        for row in rows
    ]


def has_come(row: Any, now: datetime) -> bool:
    """Return whether a one-shot's time was decided, or will be skipped once it is enabled."""
    if row["timing"]["cadence"]["type"] != "once":
        return False
    if row["enabled"]:
        # An overdue time is still undecided: the tick decides it.
        return row["next_due_at"] is None
    return first_ahead(row, msgspec.convert(row["timing"], Timing), now) is None


def is_spent(row: Any, now: datetime) -> bool:
    """Return whether a one-shot is over: its time is decided and no work is outstanding or owed."""
    return has_come(row, now) and not row["outstanding"] and not row["owed"]


def remedy(row: Any) -> str:
    """Return how to run a one-shot that is over."""
    if row["blocked_by"] is not None:
        return f"give it another time, or retry its dead letter {row['blocked_by']}"
    return f"give it another time, or run it with 'headway trigger {row['external_id']}'"


def refusal(row: Any) -> str:
    """Explain why a one-shot that is over is not enabled."""
    named = timing.describe(msgspec.convert(row["timing"], Timing))
    return (
        f"manifest {row['external_id']!r} is a one-shot, {named}, and its time has passed: "
        f"{remedy(row)}"
    )
