"""Where people arrive."""

from typing import Any

from litestar import Request, Response, get

from headway_console.access.guarding import needs
from headway_console.pages.shell import Page, show


@get("/", opt=needs("viewer"), sync_to_thread=False)
def home(request: Request[Any, Any, Any]) -> Response[str]:
    """Greet, and show the way."""
    return show(request, "home.html")


PAGE = Page(title="Home", path="/", handlers=(home,))
