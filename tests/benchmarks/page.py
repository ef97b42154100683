"""Write the tables and plots of docs/performance.md from the figures of a benchmark.

    ./justw bench page              # from docs/performance/figures.json

The text of the page is written by hand; the parts between `<!-- begin NAME -->` and `<!-- end NAME -->`
are replaced. A plot is an SVG with its figures as text.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.targets import OTHERS, Figures, as_markdown, median, shown, summary, systems_of

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "performance"
PLOTS = {
    "drain": ("Queued jobs drained a second", ("drain", "drain_two")),
    "enqueue": ("Jobs enqueued a second, in bulk", ("enqueue",)),
    "latency": (
        "Milliseconds from the call to the body, idle system (less is better)",
        ("latency_p50", "latency_p99"),
    ),
}
_ROW, _BAR, _LABELS, _BARS, _VALUES = 22, 16, 190, 360, 90
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.h{fill:#1f6feb}.o{fill:#8b949e}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.h{fill:#58a6ff}.o{fill:#6e7681}}"
)


def plot(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """Draw bars with their labels and values; the first word of a label names the system."""
    longest = max(value for _, value in rows)
    width, height = _LABELS + _BARS + _VALUES, 34 + _ROW * len(rows)
    described = "; ".join(f"{label}: {shown(value)}" for label, value in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(described)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<text x="0" y="16" font-weight="600">{escape(title)}</text>',
    ]
    for number, (label, value) in enumerate(rows):
        top = 30 + _ROW * number
        length = max(1, round(_BARS * value / longest))
        kind = "h" if label.startswith("Headway") else "o"
        lines += [
            f'<text x="{_LABELS - 8}" y="{top + 12}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{kind}" x="{_LABELS}" y="{top}" width="{length}" height="{_BAR}"/>',
            f'<text x="{_LABELS + length + 6}" y="{top + 12}">{shown(value)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def plots(figures: Figures) -> dict[str, str]:
    """Draw all plots whose figures were measured, by file name."""
    drawn = {}
    for name, (title, measured) in PLOTS.items():
        rows = [
            (system if len(measured) == 1 else f"{system}, {_short(figure)}", value)
            for system in systems_of(figures)
            for figure in measured
            if (value := median(figures, figure, system)) is not None
        ]
        if rows:
            drawn[f"{name}.svg"] = plot(title, rows)
    return drawn


def _short(figure: str) -> str:
    """Return what tells a figure from its neighbour: "one worker", or "p50"."""
    return OTHERS[figure].split(", ")[1]


def tables(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Make the parts of the page."""
    machine = document["machine"]
    conditions = (
        f"Measured at {document['measured_at']} on {machine['cores']} cores with "
        f"{machine['memory_gb']} GB ({machine['system']}, Python {machine['python']}), "
        f"{document['work']:,} jobs a drain, medians of {document['repetitions']}; "
        f"load average at the end {machine['load_at_end']}."
    )
    versions = [(name, ", ".join(packages)) for name, packages in document["versions"].items()]
    return {
        "conditions": [conditions],
        "figures": summary(document),
        "versions": as_markdown(("peer", "packages"), versions),
    }


def page(text: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Replace the parts of a page."""
    for name, lines in parts.items():
        marks = (f"<!-- begin {name} -->", f"<!-- end {name} -->")
        pattern = re.compile(f"{marks[0]}.*?{marks[1]}", re.DOTALL)
        content = "\n".join([marks[0], *lines, marks[1]])
        text, found = pattern.subn(lambda _, new=content: new, text)
        if found != 1:
            raise ValueError(f"the page has {found} parts named {name}, not one")
    return text


def files(document: Mapping[str, Any], text: str) -> dict[Path, str]:
    """Return the page and its plots, by path."""
    drawn = {FOLDER / name: svg for name, svg in plots(document["figures"]).items()}
    return {DOCS / "performance.md": page(text, tables(document)), **drawn}


def main() -> None:
    """Write the files."""
    document = json.loads((FOLDER / "figures.json").read_text())
    for path, content in files(document, (DOCS / "performance.md").read_text()).items():
        path.write_text(content)
        sys.stdout.write(f"{path}\n")
