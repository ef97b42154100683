"""Draws the tables of transitions into a Markdown page.

    python -m headway_decisions.diagrams README.md            write them
    python -m headway_decisions.diagrams README.md --check    fail if they have drifted

A diagram stands between `<!-- diagram: NAME -->` and `<!-- end -->`.
"""

import re
import sys
from pathlib import Path

from headway_decisions.transitions import run_diagram, work_diagram

_DIAGRAMS = {"run": run_diagram, "work": work_diagram}
_PLACE = re.compile(r"(<!-- diagram: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def redraw(page: str) -> str:
    """The page with every diagram as the tables are now."""

    def draw(place: re.Match[str]) -> str:
        return f"{place[1]}```mermaid\n{_DIAGRAMS[place[2]]()}\n```\n{place[3]}"

    return _PLACE.sub(draw, page)


def main(arguments: list[str]) -> int:
    """Write or check."""
    page = Path(arguments[0])
    text = page.read_text(encoding="utf-8")
    if "--check" not in arguments:
        page.write_text(redraw(text), encoding="utf-8")
        return 0
    if redraw(text) != text:
        sys.stderr.write(f"the diagrams in {page} have drifted: run './justw generate'\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
