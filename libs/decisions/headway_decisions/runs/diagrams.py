"""Draws the tables of transitions into a Markdown page.

    python -m headway_decisions.runs.diagrams README.md …            write them
    python -m headway_decisions.runs.diagrams README.md … --check    fail if they have drifted

A diagram stands between `<!-- diagram: NAME -->` and `<!-- end -->`, a table of all states and
arrows between `<!-- table: NAME -->` and `<!-- end -->`.
"""

import re
import sys
from pathlib import Path

from headway_decisions.runs.meanings import run_table, work_table
from headway_decisions.runs.transitions import run_diagram, work_diagram

_DIAGRAMS = {"run": run_diagram, "work": work_diagram}
_TABLES = {"run": run_table, "work": work_table}
_PLACE = re.compile(r"(<!-- (diagram|table): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def redraw(page: str) -> str:
    """The page with every diagram and table as they are now."""

    def draw(place: re.Match[str]) -> str:
        if place[2] == "table":
            return f"{place[1]}\n{_TABLES[place[3]]()}\n\n{place[4]}"
        return f"{place[1]}```mermaid\n{_DIAGRAMS[place[3]]()}\n```\n{place[4]}"

    return _PLACE.sub(draw, page)


def main(arguments: list[str]) -> int:
    """Write or check."""
    drifted = 0
    for page in (Path(one) for one in arguments if one != "--check"):
        text = page.read_text(encoding="utf-8")
        if "--check" not in arguments:
            page.write_text(redraw(text), encoding="utf-8")
        elif redraw(text) != text:
            sys.stderr.write(f"the diagrams in {page} have drifted: run './justw generate'\n")
            drifted = 1
    return drifted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
