"""The audit: changes with their actor and the values before and after."""

from typing import Any

from litestar import Response, get

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import compact, words
from headway_console.pages.shell import show_list
from headway_console.reading.audit import AuditEntry, AuditFilter, page_of_audit
from headway_console.services import HttpRequest

_MAX_CHANGES = 6
_MAX_TEXT = 160
# Shown in other columns, or bookkeeping.
_HIDDEN = frozenset(
    (
        *("actor", "cause", "dead_letter", "disabled_by", "group", "manifest_id", "requested_at"),
        *("resolved_at", "round", "operator_fields", "version"),
    )
)


def changes_of(entry: AuditEntry) -> list[tuple[str, str, str]]:
    """Return the first changed values: name, value before (empty if none), and after."""
    before, after = _flat(entry.before), _flat(entry.after)
    names = [name for name in (*after, *before) if name.partition(".")[0] not in _HIDDEN]
    found = [
        (
            words(name),
            _short(before[name]) if name in before else "",
            _short(after[name]) if name in after else "none",
        )
        for name in dict.fromkeys(names)
        if before.get(name, ...) != after.get(name, ...)
        and (name in before or after[name])
        and after.get(name) != entry.target
    ]
    return found[:_MAX_CHANGES]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested values by their path: `retry.attempts`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


@get("/audit", opt=needs("viewer"))
async def audit(request: HttpRequest) -> Response[str]:
    """List changes, the newest first."""
    people = fields.text_of(request, "people") != "false"
    filters = fields.read_filters(request, AuditFilter, people=people)
    return await show_list(
        request, "audit.html", page_of_audit, filters=filters, changes=changes_of
    )
