"""The tests that the docs name as evidence for a promise or a feature."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARITY = ROOT / "docs" / "parity.md"
RELIABILITY = ROOT / "docs" / "reliability.md"
TRAPS = ROOT / "docs" / "traps.md"

_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """Return each test that a text names once, as its file and its name in the file."""
    return list(dict.fromkeys(_NAMED_TEST.findall(text)))


def promised_tests() -> set[str]:
    """Return the ids, without parameters, of all tests that the pages of promises name."""
    pages = (PARITY.read_text(), RELIABILITY.read_text(), TRAPS.read_text())
    return {f"{file}::{test}" for page in pages for file, test in named_tests(page)}
