"""Values as text: template filters, and settings of manifests."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from headway_decisions.firing.identity import kind_of
from markupsafe import Markup, escape

_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
_LONG = 600.0
_SECONDS = "_seconds"
# Version of UUIDs that begin with their time.
_IN_ORDER_OF_TIME = 7
_SIZES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))

# Colours of states and outcomes; others are plain.
TINTS = {
    "good": ("completed", "enabled", "accepted", "retried", "alive", "leads", "ok"),
    "bad": ("failed", "dead_lettered", "awaiting", "refused", "lost", "unknown", "troubled"),
    "warn": (
        *("blocked", "blocked_by_dead_letter", "cancelled", "expired", "skipped", "disabled"),
        *("job_retired", "manifest_disabled", "group_disabled", "draining", "late", "paused"),
        *("invalid_input", "not_fired"),
    ),
    "busy": ("in_progress", "pending", "dispatched", "under_way", "owed", "waiting", "queued"),
}
_CAUSES = {
    "due": "scheduled",
    "stretch": "scheduled",
    "trigger": "triggered",
    "backfill": "backfilled",
    "activation": "activated by a run",
    "success": "after its parent",
    "successes": "after its parent",
    "replay": "retried",
    "enqueue": "enqueued",
}
_PATHS = {"work": "/work", "run": "/runs", "dead letter": "/dead-letters"}
_NAMED = re.compile(
    rf"\b({'|'.join(_PATHS)}) ([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\b"
)
TINT_OF = {state: tint for tint, states in TINTS.items() for state in states}


def seconds(value: float | None) -> str:
    """Write a duration: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    if not value:
        return "\u2013" if value is None else "0 s"
    for size, unit in _UNITS:
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + f" {unit}"
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.1f} s" if value >= 0.1 else f"{value * 1000:.0f} ms"


def milliseconds(value: float) -> str:
    """Write a duration exactly: `0.4 ms`, `1 240 ms`, `69.21 s`; a long one as `seconds` does."""
    exact = value * 1000
    if exact >= 10_000:
        return f"{value:.2f} s" if value < _LONG else seconds(value)
    return f"{exact:.1f} ms" if exact < 100 else f"{count(round(exact))} ms"


def size(value: float) -> str:
    """Write a number of bytes."""
    for bytes_, unit in _SIZES:
        if value >= bytes_:
            return f"{value / bytes_:.1f} {unit}"
    return f"{value:.0f} B"


def count(value: float) -> str:
    """Write a number with thousands separated by spaces."""
    return f"{value:,}".replace(",", "\u202f")


def noun(number: float, singular: str) -> str:
    """Return a noun in the number that fits: `worker`, `workers`."""
    return singular if number == 1 else f"{singular}s"


def cause(value: str) -> str:
    """Write the origin of work."""
    return _CAUSES.get(kind_of(value), words(value))


def words(value: object) -> str:
    """Write a state as words: `dead_lettered` becomes `dead lettered`."""
    return str(value).replace("_", " ")


def linked(text: str) -> Markup:
    """Escape a text, and link the work, runs and dead letters that it names."""

    def link(match: re.Match[str]) -> str:
        kind, identity = match[1], match[2]
        return f'{kind} <a href="{_PATHS[kind]}/{identity}"><code>{identity[:8]}</code></a>'

    return Markup(_NAMED.sub(link, str(escape(text))))  # noqa: S704 (escaped above)


def tint(value: object) -> str:
    """Return the CSS class that colours a state."""
    return TINT_OF.get(str(value).partition(":")[0], "")


def clock(value: datetime, zone: str = "UTC") -> str:
    """Write a time in a zone."""
    return f"{value.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S %Z}"


def pretty(value: Any) -> str:
    """Write indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def compact(value: Any) -> str:
    """Write JSON in one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def query(values: dict[str, Any]) -> str:
    """Write a query string without empty values."""
    given = {name: value for name, value in values.items() if value not in (None, "", [], ())}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def short(value: UUID) -> str:
    """Write the beginning of an id; ids in the order of time share more of it than random ones."""
    return str(value)[: 18 if value.version == _IN_ORDER_OF_TIME else 8]


def setting_label(name: str) -> str:
    """Write the name of a setting without its unit."""
    return words(name.removesuffix(_SECONDS))


def setting_text(name: str, value: Any) -> str:
    """Write the value of a setting."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(_SECONDS) and isinstance(value, int | float):
        return seconds(float(value))
    if isinstance(value, Mapping):
        write = _SETTINGS.get(name)
        return compact(value) if write is None else write(dict(value))
    if isinstance(value, list):
        return ", ".join(item if isinstance(item, str) else compact(item) for item in value)
    return words(value) if name.startswith("on_") else str(value)


def _retry(value: dict[str, Any]) -> str:
    attempts, interval = value.get("attempts", 1), value.get("interval_seconds", 0)
    if attempts == 1:
        return "one attempt"
    text = f"{attempts} attempts, {seconds(float(interval))} apart"
    if (backoff := value.get("backoff", 1)) != 1:
        longest = max(float(interval), float(value.get("max_interval_seconds", 0)))
        most = f" up to {seconds(longest)}" if longest else ""
        text += f", backoff {backoff:g}{most}"
    for field, what in (("retry_on", "only after"), ("abort_on", "not after")):
        if value.get(field):
            text += f", {what} {', '.join(value[field])}"
    return text


def _misfire(value: dict[str, Any]) -> str:
    policy = words(value.get("policy", "fire_once"))
    rest = {name: item for name, item in value.items() if name != "policy" and item is not None}
    about = ", ".join(
        f"{setting_label(name)} {setting_text(name, item)}" for name, item in rest.items()
    )
    return f"{policy} ({about})" if about else policy


def _labels(value: dict[str, Any]) -> str:
    return ", ".join(f"{name}={item}" for name, item in sorted(value.items()))


_SETTINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "retry": _retry,
    "misfire": _misfire,
    "labels": _labels,
}
_TEXTS = (
    seconds,
    milliseconds,
    size,
    count,
    noun,
    cause,
    words,
    linked,
    tint,
    clock,
    pretty,
    compact,
    query,
)
FILTERS = {text.__name__: text for text in (*_TEXTS, short, setting_label, setting_text)}
