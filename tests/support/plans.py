"""What a statement has read, by its plan."""

from typing import Any


def rows_read(plan: dict[str, Any]) -> int:
    """How many rows the scans of a plan brought up, those they threw away included."""
    own = 0
    if "Relation Name" in plan or plan["Node Type"].endswith("Index Scan"):
        thrown_away = plan.get("Rows Removed by Filter", 0) + plan.get(
            "Rows Removed by Index Recheck", 0
        )
        own = int((plan["Actual Rows"] + thrown_away) * plan["Actual Loops"])
    return own + sum(rows_read(child) for child in plan.get("Plans", ()))


def scans_of(plan: dict[str, Any], table: str) -> set[str]:
    found = {plan["Node Type"]} if plan.get("Relation Name") == table else set()
    return found.union(*(scans_of(child, table) for child in plan.get("Plans", ())))


def outline(plan: dict[str, Any], depth: int = 0) -> str:
    """A plan in a few lines, for whoever reads a failure."""
    own = (
        f"{'  ' * depth}{plan['Node Type']} {plan.get('Index Name', plan.get('Relation Name', ''))}"
    )
    rows = f" rows={plan['Actual Rows']} loops={plan['Actual Loops']}"
    return own + rows + "".join(f"\n{outline(one, depth + 1)}" for one in plan.get("Plans", ()))
