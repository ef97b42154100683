"""What pages ask the services for, as whoever looks."""

from typing import Any

from headway import Client
from headway_errors import RequestFailed
from litestar import Request, Response

from headway_console.pages.flash import go_to
from headway_console.pages.sign_in import safe_path


def client_of(request: Request[Any, Any, Any]) -> Client:
    """A client that asks as the person who has signed in."""
    return Client(control=request.app.state.control, actor=request.user.name)


async def back_of(request: Request[Any, Any, Any], otherwise: str) -> str:
    """The page of ours that a form came from."""
    given = (await request.form()).get("back")
    return safe_path(given) if given else otherwise


def refused(request: Request[Any, Any, Any], to: str, error: RequestFailed) -> Response[Any]:
    """Back to where somebody came from, with what the service says against it."""
    return go_to(request, to, text=str(error), kind="bad")
