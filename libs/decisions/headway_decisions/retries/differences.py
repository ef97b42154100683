"""How an edited input differs from the one that failed."""

from collections.abc import Iterator
from typing import Any

from headway_contract.settled import InputChange


def difference(was: Any, now: Any) -> list[InputChange]:
    """Every place that differs; lists of different lengths differ as a whole."""
    return list(_changes("", was, now))


def _changes(path: str, was: Any, now: Any) -> Iterator[InputChange]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() - now.keys()):
            yield InputChange(path=_below(path, key), was=was[key])
        for key, value in now.items():
            if key in was:
                yield from _changes(_below(path, key), was[key], value)
            else:
                yield InputChange(path=_below(path, key), now=value)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from _changes(_below(path, index), before, after)
    elif was != now or isinstance(was, bool) is not isinstance(now, bool):
        yield InputChange(path=path, was=was, now=now)


def _below(path: str, step: object) -> str:
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"
