"""Diagrams and tables of the states, drawn into Markdown pages.

A diagram is between `<!-- diagram: NAME -->` and `<!-- end -->`, a table of all states and moves
between `<!-- table: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from headway_decisions.runs.transitions import RUN_TRANSITIONS, TERMINAL, WORK_TRANSITIONS

from generators.meanings import RUN_MOVES, RUN_STATES, WORK_MOVES, WORK_STATES

_PAGES = (Path("docs/concepts.md"), Path("docs/states.md"))


def files(root: Path) -> dict[Path, str]:
    """Draw the pages again."""
    return {page: redraw((root / page).read_text(encoding="utf-8")) for page in _PAGES}


def run_diagram() -> str:
    """Draw the states of a run as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> pending: admitted"]
    lines += [f"    {state} --> {to}: {move}" for (state, move), to in RUN_TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in RUN_STATES if state in TERMINAL]
    return "\n".join(lines)


def work_diagram() -> str:
    """Draw the states of work as a Mermaid diagram."""
    lines = ["stateDiagram-v2", "    [*] --> queued: work.queued"]
    moves = cast("dict[tuple[str, str], str]", WORK_TRANSITIONS)
    lines += [f"    {state} --> {to}: {move}" for (state, move), to in moves.items()]
    lines.append("    settled --> [*]")
    return "\n".join(lines)


def run_table() -> str:
    """List states and moves of a run as Markdown."""
    return _state_table(RUN_STATES) + "\n\n" + _move_table(RUN_TRANSITIONS, RUN_MOVES)


def work_table() -> str:
    """List states and moves of work as Markdown."""
    return _state_table(WORK_STATES) + "\n\n" + _move_table(WORK_TRANSITIONS, WORK_MOVES)


def _state_table(meanings: Mapping[Any, str]) -> str:
    rows = [f"| `{state}` | {meaning} |" for state, meaning in meanings.items()]
    return "\n".join(["| state | means |", "|---|---|", *rows])


def _move_table(transitions: Mapping[Any, Any], meanings: Mapping[Any, str]) -> str:
    rows = [
        f"| `{state}` | `{to}` | {move} | {meanings[move]} |"
        for (state, move), to in transitions.items()
    ]
    return "\n".join(["| from | to | move | when |", "|---|---|---|---|", *rows])


_DIAGRAMS = {"run": run_diagram, "work": work_diagram}
_TABLES = {"run": run_table, "work": work_table}
_PLACE = re.compile(r"(<!-- (diagram|table): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def redraw(page: str) -> str:
    """Return the page with current diagrams and tables."""

    def draw(place: re.Match[str]) -> str:
        if place[2] == "table":
            return f"{place[1]}\n{_TABLES[place[3]]()}\n\n{place[4]}"
        return f"{place[1]}```mermaid\n{_DIAGRAMS[place[3]]()}\n```\n{place[4]}"

    return _PLACE.sub(draw, page)
