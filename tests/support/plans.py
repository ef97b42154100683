"""Plans of statements, and a backlog to look at them with."""

from typing import Any

FILL = """
INSERT INTO dispatcher.work_queue
    (id, round, slot, group_name, job, cause, queued_at, priority, rank, not_before, terms,
     state, wait_reason, received_at,
     hold_reason, concurrency_key)
SELECT gen_random_uuid(), 1, 0, $2, $3, 'test', $4::timestamptz, 0,
       $4 + number * interval '1 ms', $4, '{}', 'queued', 'awaiting_gate', $4,
       $5, $6
FROM generate_series(1, $1::integer) AS number
"""


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
    """Return a plan in a few lines, for the message of a failure."""
    own = (
        f"{'  ' * depth}{plan['Node Type']} {plan.get('Index Name', plan.get('Relation Name', ''))}"
    )
    rows = f" rows={plan['Actual Rows']} loops={plan['Actual Loops']}"
    return own + rows + "".join(f"\n{outline(node, depth + 1)}" for node in plan.get("Plans", ()))
