"""Foretell which fires follow if manifests resume now, by the rule that will decide them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headway_contract.manifests import ResumedManifest
from headway_decisions.firing import due, manifest_state
from headway_decisions.firing.manifest_state import ManifestView
from headway_decisions.firing.pauses import open_windows, rewindow
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Spaced
from headway_decisions.wording import counted, utc
from msgspec import structs

from headway_scheduler.fire.decide import Manifest, UnreadableManifest
from headway_scheduler.fire.pauses import windows_of

_FIRES_LISTED = 20
_FIRES_NAMED = 3
# Due times that are counted for one manifest, and for one answer.
_COUNTED = 1000
_COUNTED_AT_LEAST = 5
_COUNTED_IN_ALL = 50_000

# The fires of manifests if their pauses end, by the state from which they were computed.
Foreseen = dict[ManifestView, ResumedManifest]


def foresee_all(
    rows: Sequence[Any],
    read: Sequence[Manifest | UnreadableManifest],
    now: datetime,
    foreseen: Foreseen,
) -> list[ResumedManifest]:
    """Compute the fires of manifests; those in `foreseen` only if they changed since."""
    known = {row["id"]: row for row in rows}
    most = min(_COUNTED, max(_COUNTED_AT_LEAST, _COUNTED_IN_ALL // max(1, len(rows))))
    return [
        _resumed(known[manifest.id], text=f"cannot be judged: {manifest.trouble}")
        if isinstance(manifest, UnreadableManifest)
        else foreseen.get(manifest.view)
        or _foresee_fires(manifest.view, known[manifest.view.id], now, most)
        for manifest in read
    ]


def _foresee_fires(view: ManifestView, row: Any, now: datetime, most: int) -> ResumedManifest:
    """Compute the fires of one manifest by the rule that will decide them."""
    hold = None if view.hold == manifest_state.PAUSED else view.hold
    windows = rewindow(view.windows, (), next_due_at=view.next_due_at, now=now)
    resumed_view = structs.replace(view, hold=hold, windows=windows)
    try:
        passed, more = _passed(view, now, most)
        verdict = due.judge(resumed_view, now=now)
    except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
        return _resumed(row, text=f"cannot be judged: {error}")
    made = [entry for entry in verdict.entries if entry.decision in ("queued", "owed")]
    fires = [entry.first_due_at for entry in made if entry.cause.startswith("due:")]
    resumed = _resumed(
        row,
        policy=view.misfire.policy,
        passed=passed,
        passed_or_more=more,
        fires=fires[-_FIRES_LISTED:],
        more_fires=max(0, len(fires) - _FIRES_LISTED),
        owed=len(verdict.releases),
        follows=len(made) > len(fires),
    )
    return structs.replace(resumed, text=_resumed_message(resumed, hold))


def fire_count(resumed: ResumedManifest) -> int:
    """Return how many runs follow if a manifest is resumed."""
    return len(resumed.fires) + resumed.more_fires + resumed.owed + resumed.follows


def _passed(view: ManifestView, now: datetime, most: int) -> tuple[int, bool]:
    """Count the due times without a decision; true if there are more than counted."""
    at, count = view.next_due_at, 0
    if isinstance(view.timing.cadence, Spaced):
        return int(at is not None and at <= now), False
    while at is not None and at <= now and count < most:
        count += 1
        at = timing.next_due(view.timing, at)
    return count, at is not None and at <= now


def _resumed(row: Any, **fields: Any) -> ResumedManifest:
    held = open_windows(windows_of(row))
    return ResumedManifest(
        manifest=row["external_id"],
        paused_at=min(window.since for window in held),
        reason="; ".join(dict.fromkeys(window.reason for window in held if window.reason)),
        **fields,
    )


def _resumed_message(resumed: ResumedManifest, hold: str | None) -> str:
    if hold is not None:
        return f"it stays held: {hold}"
    or_more = " or more" if resumed.passed_or_more else ""
    parts = [f"{resumed.passed}{or_more} due {'time' if resumed.passed == 1 else 'times'} passed"]
    if resumed.owed:
        parts.append(f"{counted(resumed.owed, 'earlier decision')} that waited for room will run")
    if resumed.follows:
        parts.append("it follows a success of its parent during the pause")
    policy = f"by its misfire policy {resumed.policy!r}"
    if resumed.fires:
        which = ", ".join(map(utc, resumed.fires[:_FIRES_NAMED]))
        rest = len(resumed.fires) - _FIRES_NAMED + resumed.more_fires
        more = f" and {rest} more" if rest > 0 else ""
        parts.append(f"{policy} it fires for {which}{more}")
    elif resumed.passed:
        parts.append(f"{policy} none of them fires")
    return "; ".join(parts)
