"""Cases of parametrized tests in the tier of CI alone."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_in_each_tier(values: Iterable[Any], *, first: int = 1) -> list[Any]:
    """Mark all values but the first ones as thorough: they show the same in another way."""
    return [
        value if place < first else pytest.param(*_arguments(value), marks=pytest.mark.thorough)
        for place, value in enumerate(values)
    ]


def _arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
