"""The application: every route behind one guard."""

from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.datastructures import CacheControlHeader, State
from litestar.middleware import DefineMiddleware
from litestar.static_files import create_static_files_router

from headway_console.access.authentication import Authentication
from headway_console.access.guards import check_declared, guard, open_to_anyone
from headway_console.api import ENDPOINTS
from headway_console.api.endpoints import handler_of
from headway_console.api.openapi import document_handler
from headway_console.pages import HANDLERS, PAGES
from headway_console.pages.shell import answer_error
from headway_console.settings import ConsoleSettings, host_of, is_loopback

# Room for definitions of thousands of manifests.
_MAX_BYTES = 4 * 1024 * 1024
_CACHE_SECONDS = 300


def make_application(**parts: Any) -> Litestar:
    """Build all routes with the parts that handlers need; raises `RouteUndeclared`."""
    static = create_static_files_router(
        path="/static",
        directories=[Path(__file__).parent / "static"],
        opt=open_to_anyone(),
        cache_control=CacheControlHeader(max_age=_CACHE_SECONDS, private=True),
        include_in_schema=False,
    )
    app = Litestar(
        route_handlers=[*map(handler_of, ENDPOINTS), document_handler, *HANDLERS, static],
        guards=[guard],
        middleware=[DefineMiddleware(Authentication)],
        exception_handlers={Exception: answer_error},
        state=State({**parts, "navigation": PAGES}),
        request_max_body_size=_MAX_BYTES,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    check_declared(app)
    return app


def known_hosts(settings: ConsoleSettings, port: int) -> frozenset[str]:
    """Return the accepted values of the Host header; empty accepts any.

    On loopback only local names are accepted, against DNS rebinding by foreign pages. Elsewhere
    every request needs a credential, so any name is accepted.
    """
    if not is_loopback(settings.console_address.rpartition(":")[0]):
        return frozenset()
    ours = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(ours | ({host_of(settings.console_url)} if settings.console_url else set()))


def known_origins(settings: ConsoleSettings, port: int) -> frozenset[str]:
    """Return the origins of this console; empty if its URL is not configured."""
    if settings.console_url:
        scheme = "https" if settings.is_secure else "http"
        return frozenset({f"{scheme}://{host_of(settings.console_url)}"})
    return frozenset(f"http://{host}" for host in known_hosts(settings, port))
