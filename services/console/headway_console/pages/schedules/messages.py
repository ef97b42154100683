"""Settings of a schedule as people say them. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from headway_console.pages.filters import compact, seconds, words

_UNIT = "_seconds"


def called(name: str) -> str:
    """What a setting is called: its unit is in its value."""
    return words(name.removesuffix(_UNIT))


def told(name: str, value: Any) -> str:
    """What it is set to."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(_UNIT) and isinstance(value, int | float):
        return seconds(float(value))
    if isinstance(value, Mapping):
        tell = _TOLD.get(name)
        return compact(value) if tell is None else tell(dict(value))
    if isinstance(value, list):
        return ", ".join(one if isinstance(one, str) else compact(one) for one in value)
    return words(value) if name.startswith("on_") else str(value)


def _retry(value: dict[str, Any]) -> str:
    attempts, interval = value.get("attempts", 1), value.get("interval_seconds", 0)
    if attempts == 1:
        return "one attempt"
    text = f"{attempts} attempts, {seconds(float(interval))} apart"
    if (backoff := value.get("backoff", 1)) != 1:
        longest = max(float(interval), float(value.get("max_interval_seconds", 0)))
        most = f" up to {seconds(longest)}" if longest else ""
        text += f", each wait {backoff:g} times the one before{most}"
    for field, what in (("retry_on", "only after"), ("abort_on", "not after")):
        if value.get(field):
            text += f", {what} {', '.join(value[field])}"
    return text


def _misfire(value: dict[str, Any]) -> str:
    policy = words(value.get("policy", "fire_once"))
    rest = {name: one for name, one in value.items() if name != "policy" and one is not None}
    about = ", ".join(f"{called(name)} {told(name, one)}" for name, one in rest.items())
    return f"{policy} ({about})" if about else policy


def _labels(value: dict[str, Any]) -> str:
    return ", ".join(f"{name}={one}" for name, one in sorted(value.items()))


_TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "retry": _retry,
    "misfire": _misfire,
    "labels": _labels,
}
