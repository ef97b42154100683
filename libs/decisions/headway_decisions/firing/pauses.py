"""The windows of a manifest: the times in which pauses hold it.

Pauses stack: a manifest is held as long as one of its windows is open. A window that has ended is
kept until the due times in it are decided, because it is the reason of those that do not fire.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from headway_decisions.firing.manifest_state import Window
from headway_decisions.wording import utc


def open_windows(windows: Iterable[Window]) -> list[Window]:
    """Return the windows that hold a manifest."""
    return [window for window in windows if window.ended_at is None]


def held_until(windows: Sequence[Window]) -> datetime | None:
    """Return when the last open window ends by itself; `None` if one of them does not."""
    ends = [window.until for window in open_windows(windows)]
    return max((end for end in ends if end is not None), default=None) if all(ends) else None


def rewindow(
    known: Iterable[Window],
    covering: Iterable[Window],
    *,
    next_due_at: datetime | None,
    now: datetime,
) -> tuple[Window, ...]:
    """Return the windows of a manifest, given one for each pause that covers it now.

    A window whose pause no longer covers the manifest ends, at the latest when its pause does.
    """
    wanted = {window.pause: window for window in covering}
    ended = [
        window if window.ended_at is not None else _end(window, now)
        for window in known
        if window.ended_at is not None or window.pause not in wanted
    ]
    undecided = [
        window
        for window in ended
        if next_due_at is not None and window.ended_at and window.ended_at >= next_due_at
    ]
    kept = [window for window in open_windows(known) if wanted.pop(window.pause, None)]
    return (*undecided, *kept, *wanted.values())


def _end(window: Window, now: datetime) -> Window:
    end = now if window.until is None else min(now, window.until)
    return structs.replace(window, ended_at=max(window.since, end))


def covers_text(
    manifests: Sequence[str] | None, group: str | None, labels: Mapping[str, str] | None
) -> str:
    """Describe the manifests that a pause covers."""
    if manifests:
        return "named manifests"
    if group is not None:
        return f"group {group}"
    if labels:
        return f"label {', '.join(f'{name}={value}' for name, value in sorted(labels.items()))}"
    return "all manifests"


def pause_text(window: Window) -> str:
    """Describe the pause of a window: what it covers, its author, its end and its reason."""
    until = "until resumed" if window.until is None else f"until {utc(window.until)}"
    reason = f", reason: {window.reason}" if window.reason else ""
    return f"{window.covers}, by {window.by} {until}{reason}"
