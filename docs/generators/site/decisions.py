"""The list of decisions."""

import re
from pathlib import Path

_NUMBERED = re.compile(r"\d{4}-.*\.md")


def text(root: Path) -> str:
    """List each decision by its title, which states it."""
    found = sorted(path for path in (root / "docs" / "adr").iterdir() if _NUMBERED.match(path.name))
    rows = [f"| {int(path.name[:4])} | [{title(path)}]({path.name}) |" for path in found]
    return "\n".join(["| | decision |", "|--:|---|", *rows])


def title(path: Path) -> str:
    """Return the title of a decision without its number."""
    heading = path.read_text("utf-8").partition("\n")[0]
    return re.sub(r"^#+ (?:ADR )?\d*[.:]? ?", "", heading)
