"""Policies as users write them: for fires that were missed, and for fires that overlap.

every(minutes=5, misfire=skip_missed(), overlap="queue_one")
"""

import re
from typing import Literal

from headway_decisions.firing.manifest_state import MOST_CAUGHT_UP, Misfire, Overlap

from headway.define.calendar import did_you_mean

MisfireGiven = Misfire | Literal["fire_once", "skip"] | None
OverlapGiven = Overlap | Literal["skip", "queue_one", "cancel_running"] | None


def fire_once(*, threshold: float = 60.0) -> Misfire:
    """Missed fires are made up for by one: the default."""
    return Misfire(policy="fire_once", threshold_seconds=threshold)


def skip_missed(*, threshold: float = 60.0) -> Misfire:
    """Missed fires are skipped, unless the latest is no older than the threshold in seconds."""
    return Misfire(policy="skip", threshold_seconds=threshold)


def catch_up(most: int, *, threshold: float = 60.0) -> Misfire:
    """The last `most` missed fires are made up for, one after the other or as many as may overlap.

    Only for jobs that may run twice without harm: replayed fires mean reports that are made
    again and mails that are sent again.
    """
    return Misfire(policy="catch_up", threshold_seconds=threshold, limit=most)


def allow(most: int) -> Overlap:
    """Up to so many pieces of work of one manifest may be under way at once."""
    return Overlap(policy="allow", limit=most)


def read_misfire(given: object, problems: list[str], *, threshold: float = 60.0) -> Misfire | None:
    """A misfire policy that was given, by name or as a value; a name comes with a threshold."""
    match given:
        case None | Misfire():
            return given
        case "fire_once":
            return Misfire(policy="fire_once", threshold_seconds=threshold)
        case "skip":
            return Misfire(policy="skip", threshold_seconds=threshold)
    hint = did_you_mean(given, ["fire_once", "skip"])
    problems.append(f"{given!r} is no misfire policy: use 'fire_once', 'skip' or catch_up(n){hint}")
    return None


def parse_misfire(text: str, *, threshold: float = 60.0) -> Misfire:
    """Read a misfire policy from a setting: `fire_once`, `skip` or `catch_up:5`."""
    if text in ("fire_once", "skip"):
        return Misfire(policy=text, threshold_seconds=threshold)  # type: ignore[arg-type]
    found = re.fullmatch(r"catch_up:([0-9]{1,9})", text)
    if found is not None and 1 <= int(found[1]) <= MOST_CAUGHT_UP:
        return catch_up(int(found[1]), threshold=threshold)
    raise ValueError(
        f"{text!r} is no misfire policy: write fire_once, skip, or catch_up:5 with a number from "
        f"1 to {MOST_CAUGHT_UP}"
    )


def read_overlap(given: object, problems: list[str]) -> Overlap | None:
    """An overlap policy that was given, by name or as a value."""
    match given:
        case None | Overlap():
            return given
        case "skip":
            return Overlap(policy="skip")
        case "queue_one":
            return Overlap(policy="queue_one")
        case "cancel_running":
            return Overlap(policy="cancel_running")
    hint = did_you_mean(given, ["skip", "queue_one", "cancel_running"])
    problems.append(
        f"{given!r} is no overlap policy: use 'skip', 'queue_one', 'cancel_running' or "
        f"allow(n){hint}"
    )
    return None
