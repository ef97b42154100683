"""What an operator has changed, as a person would say it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from headway_contract.work import Rate
from headway_decisions.capacity.rates import rate_in_words


def in_words(told: Mapping[str, Any]) -> str:
    """What is otherwise than before; empty if that is only whose it is."""
    # Who disabled a manifest may change alone, and together with that it is.
    said = dict.fromkeys(_words(key, value) for key, value in told.items())
    return ", ".join(words for words in said if words)


def taken_in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Whose settings are from now on that stay as they are."""
    taken = sorted(set(after["touched"]) - set(before["touched"]))
    if not taken:
        return "the code owns it again"
    return f"nothing else than before, but the code no longer decides about {', '.join(taken)}"


def _words(key: str, value: Any) -> str:
    match key:
        case "enabled":
            return "enabled" if value else "disabled"
        case "disabled_by":
            return "disabled" if value else ""
        case "retry":
            apart = f"{value['interval_seconds']:g} s apart at first"
            return f"{value['attempts']} attempt(s), {apart}"
        case "jitter_seconds":
            return f"jitter {value:g} s"
        case "max_active":
            return "any number at once" if value is None else f"at most {value} at once"
        case "priority":
            return f"priority {value}"
        case "rate":
            rate = msgspec.convert(value, Rate | None)
            return "at any rate" if rate is None else f"at most {rate_in_words(rate)}"
    return ""
