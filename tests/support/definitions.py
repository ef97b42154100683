"""Problems of definitions, in an app or in a file."""

from collections.abc import Collection
from pathlib import Path

import pytest
from headway import App, InvalidDefinitions, load_yaml


def problems(source: App | str | Path) -> list[str]:
    """Return the problems of an app, or of a file or its text in YAML; there must be some."""
    with pytest.raises(InvalidDefinitions) as caught:
        source.definitions() if isinstance(source, App) else load_yaml(source)
    return caught.value.problems


def check_beginnings(found: Collection[str], expected: Collection[str]) -> None:
    """Raise unless there are just so many problems, and one with each beginning."""
    for beginning in expected:
        assert any(problem.startswith(beginning) for problem in found), beginning
    assert len(found) == len(expected), found


def check_phrases(found: Collection[str], expected: Collection[str]) -> None:
    """Raise unless there are just so many problems, and one with each phrase in it."""
    for phrase in expected:
        assert any(phrase in problem for problem in found), phrase
    assert len(found) == len(expected), found
