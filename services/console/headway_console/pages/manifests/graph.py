"""Layout of the dependency graph, in layers from left to right. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from headway_console.reading.manifests import Relative

_BOX_WIDTH, _BOX_HEIGHT = 190, 40
_ACROSS, _DOWN = 36, 10
_MARGIN = 6


class Box(Struct, frozen=True, kw_only=True):
    """A manifest in the drawing."""

    x: float
    y: float
    of: Relative
    is_here: bool


class Drawing(Struct, frozen=True, kw_only=True):
    """The drawing; a line is an SVG path from a parent, and whether the dependent is dormant."""

    width: float
    height: float
    boxes: list[Box]
    lines: list[tuple[str, bool]]
    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def draw(family: Sequence[Relative], here: UUID | None = None) -> Drawing | None:
    """Lay out a family; returns `None` for a single manifest."""
    if len(family) < 2:
        return None
    rows = _rows(family)
    boxes = {
        node.id: Box(
            x=_MARGIN + node.depth * (_BOX_WIDTH + _ACROSS),
            y=_MARGIN + rows[node.id] * (_BOX_HEIGHT + _DOWN),
            of=node,
            is_here=node.id == here,
        )
        for node in family
    }
    lines = []
    for node in family:
        if node.depends_on in boxes:
            parent, child = boxes[node.depends_on], boxes[node.id]
            x1, y1 = parent.x + _BOX_WIDTH, parent.y + _BOX_HEIGHT / 2
            x2, y2 = child.x, child.y + _BOX_HEIGHT / 2
            middle = (x1 + x2) / 2
            path = f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
            lines.append((path, node.dormant))
    return Drawing(
        width=max(box.x for box in boxes.values()) + _BOX_WIDTH + _MARGIN,
        height=max(box.y for box in boxes.values()) + _BOX_HEIGHT + _MARGIN,
        boxes=list(boxes.values()),
        lines=lines,
    )


def _rows(family: Sequence[Relative]) -> dict[UUID, float]:
    """Place leaves one below the other, and a parent in the middle of its children."""
    children: defaultdict[UUID, list[UUID]] = defaultdict(list)
    for relative in family:
        if relative.depends_on is not None:
            children[relative.depends_on].append(relative.id)
    rows: dict[UUID, float] = {}
    leaves = 0
    # Iterative, because chains may be long: a parent follows its children.
    roots = [node.id for node in family if node.depth == 0]
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:
        node, is_placed_below = waiting.pop()
        if is_placed_below:
            below = [rows[child] for child in children[node]]
            rows[node] = (below[0] + below[-1]) / 2
        elif children[node]:
            waiting.append((node, True))
            waiting += [(child, False) for child in reversed(children[node])]
        else:
            rows[node] = float(leaves)
            leaves += 1
    return {node.id: rows.get(node.id, 0.0) for node in family}
