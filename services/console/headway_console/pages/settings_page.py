"""The settings that hold in this console, and who says so."""

import os
from typing import Any

from headway_service_kit.describing import holding, in_words
from litestar import Request, Response, get

from headway_console.access.guarding import needs
from headway_console.pages.asked import filters_of, text_of
from headway_console.pages.shell import Page, show


@get("/settings", opt=needs("viewer"), sync_to_thread=False)
def settings(request: Request[Any, Any, Any]) -> Response[str]:
    """Every setting of this process. Those of the services are known to them alone."""
    found = holding(request.app.state.settings, os.environ)
    if text_of(request, "which") == "changed":
        found = [one for one in found if one.source != "default"]
    return show(
        request,
        "settings.html",
        settings=found,
        in_words=in_words,
        values=filters_of(request, "which"),
    )


PAGE = Page(title="Settings", path="/settings", key="t", handlers=(settings,))
