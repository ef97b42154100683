"""Labels and texts of settings. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from headway_console.pages.filters import compact, seconds, words

_UNIT = "_seconds"


def setting_label(name: str) -> str:
    """Write the name of a setting without its unit."""
    return words(name.removesuffix(_UNIT))


def setting_text(name: str, value: Any) -> str:
    """Write the value of a setting."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(_UNIT) and isinstance(value, int | float):
        return seconds(float(value))
    if isinstance(value, Mapping):
        write = _WRITERS.get(name)
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


_WRITERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "retry": _retry,
    "misfire": _misfire,
    "labels": _labels,
}
