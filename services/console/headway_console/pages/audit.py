"""The audit: who changed what, when, and from what to what."""

from typing import Any

from litestar import Request, Response, get

from headway_console.access.guarding import needs
from headway_console.pages.asked import filters_of, moment_of, text_of
from headway_console.pages.shell import Page, show
from headway_console.reading.audit import AuditFilter, page_of_audit

_FILTERS = ("actor", "action", "target", "who", "since", "before")


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
    )


PAGE = Page(title="Audit", path="/audit", key="a", handlers=(audit,))
