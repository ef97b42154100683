"""The audit: who changed what, when, and from what to what."""

from typing import Any

from litestar import Request, Response, get
from msgspec import Struct

from headway_console.access.guards import needs
from headway_console.pages.filters import compact
from headway_console.pages.form_fields import filters_of, moment_of, text_of
from headway_console.pages.shell import Page, show
from headway_console.reading.audit import AuditEntry, AuditFilter, page_of_audit

_FILTERS = ("actor", "action", "target", "who", "since", "before")
_MOST_CHANGES = 6
_LONGEST = 160
# Told in columns of their own, or bookkeeping.
_UNTOLD = frozenset(
    (
        *("actor", "cause", "dead_letter", "disabled_by", "group", "manifest_id", "requested_at"),
        *("resolved_at", "round", "touched", "version"),
    )
)


class Change(Struct, frozen=True, kw_only=True):
    """One value that somebody changed; `before` is empty where there was none."""

    name: str
    before: str
    after: str


def changes_of(entry: AuditEntry) -> list[Change]:
    """What differs between before and after, in a few lines; all of it is in the entry."""
    before, after = _flat(entry.before), _flat(entry.after)
    names = [name for name in (*after, *before) if name.partition(".")[0] not in _UNTOLD]
    found = [
        Change(
            name=name.replace("_", " "),
            before=_short(before[name]) if name in before else "",
            after=_short(after[name]) if name in after else "none",
        )
        for name in dict.fromkeys(names)
        if before.get(name, ...) != after.get(name, ...)
        and (name in before or after[name])
        and after.get(name) != entry.target
    ]
    return found[:_MOST_CHANGES]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values inside values by their path: `retry.attempts`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@get("/audit", opt=needs("viewer"))
async def audit(request: Request[Any, Any, Any]) -> Response[str]:
    """What was done, the newest first."""
    action, cursor = text_of(request, "action"), text_of(request, "cursor")
    asked = AuditFilter(
        actor=text_of(request, "actor"),
        target=text_of(request, "target"),
        actions=(action,) if action else (),
        people=text_of(request, "who") != "everybody",
        since=moment_of(request, "since"),
        before=moment_of(request, "before"),
    )
    async with request.app.state.database.acquire() as connection:
        found = await page_of_audit(connection, asked, cursor=cursor)
    return show(
        request,
        "audit.html",
        page=found,
        values=filters_of(request, *_FILTERS),
        cursor=cursor or "",
        changes=changes_of,
    )


PAGE = Page(title="Audit", path="/audit", key="a", handlers=(audit,))
