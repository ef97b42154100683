"""Batches of a file: their items, and what each of these states for itself."""

from typing import Any

from headway.define import batches
from headway.define.declarations import Declarations
from headway.define.when import When
from headway.yaml_file.nodes import Node
from headway.yaml_file.paths import Walk
from headway.yaml_file.records import CADENCES, BatchRecord
from headway.yaml_file.terms import FILTERS, is_sound, terms_of, when_of


def add_batch(walk: Walk, declared: Declarations, name: str, node: Node) -> None:
    """Declare a batch and a manifest for each of its items."""
    called = f"batch {name!r}"
    found = walk.record(node, BatchRecord, called)
    stated = _items(node, found)
    own = {
        str(one["id"]): _own_terms(walk, child, one, f"manifest '{name}-{one['id']}'", found)
        for one, child in stated
        if child is not None
    }
    items = [batches.Item(one["id"], one.get("input"), one.get("depends_on")) for one, _ in stated]
    batch = batches.BatchDraft(
        name=name,
        job=found.get("job"),
        items=items,
        when=_when(walk, node, found, called, [one for one, _ in stated]),
        parent=found.get("depends_on"),
        dormant=found.get("dormant", False),
        prune=found.get("prune", True),
        configure=lambda item: own.get(str(item.id), {}),
        terms=terms_of(found),
        where=walk.where(node.line),
        places=_places(walk, node),
    )
    for draft in batches.add_batch(declared, batch):
        if (draft.when is None) == (draft.depends_on is None) and is_sound(node, found):
            none = f"{draft.called} has neither a cadence nor a parent: give it a depends_on"
            both = f"{draft.called} has both a cadence and a parent: leave one out"
            declared.problems.append(none if draft.when is None else both)


def _when(
    walk: Walk, node: Node, found: dict[str, Any], called: str, items: list[dict[str, Any]]
) -> When | None:
    """The cadence of a batch, which needs none if its items have one, or a parent."""
    has_none = not any(name in found for name in (*CADENCES, "depends_on"))
    if has_none and any(name in one for one in items for name in CADENCES):
        _refuse_filters(walk, node, found, called)
        if found.get("dormant"):
            walk.complain(node.line, f"{called} is dormant, so its items take no cadence")
        return None
    follows = any("depends_on" in one for one in items)
    return when_of(walk, node, found, called, follows=follows)


def _refuse_filters(walk: Walk, node: Node, found: dict[str, Any], called: str) -> None:
    stated = [name for name in FILTERS if name in found]
    if stated:
        words = f"{called} states {', '.join(stated)} and no cadence of its own: state it, too"
        walk.complain(node.line, words)


def _items(node: Node, found: dict[str, Any]) -> list[tuple[dict[str, Any], Node | None]]:
    """The items of a batch that have an id, with the node of those that may state more."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    if stated is None or "items" not in found:
        return []
    if isinstance(stated.value, dict):
        return [({"id": key, "input": value}, None) for key, value in found["items"].items()]
    pairs = zip(found["items"], stated.value, strict=True)
    return [(one, child) for one, child in pairs if "id" in one]


def _places(walk: Walk, node: Node) -> dict[str, str]:
    """Where each item stands, by its id."""
    stated = node.value.get("items") if isinstance(node.value, dict) else None
    match stated.value if stated is not None else None:
        case dict() as by_id:
            return {key: walk.where(child.line) for key, child in by_id.items()}
        case list() as listed:
            named = [one for one in listed if isinstance(one.value, dict) and "id" in one.value]
            return {str(one.value["id"].value): walk.where(one.line) for one in named}
    return {}


def _own_terms(
    walk: Walk, node: Node, one: dict[str, Any], called: str, batch: dict[str, Any]
) -> dict[str, Any]:
    """What an item states for itself, its cadence included."""
    own: dict[str, Any] = {
        name: value for name, value in terms_of(one).items() if value is not None and value != []
    }
    has_cadence = any(name in one for name in CADENCES)
    parent = one.get("depends_on", batch.get("depends_on"))
    if parent is not None or has_cadence:
        following = {"depends_on": parent} if parent is not None else {}
        when = when_of(walk, node, {**one, **following}, called)
        if when is not None:
            own["when"] = when
    else:
        _refuse_filters(walk, node, one, called)
    return own
