"""The application: every route behind one guard."""

from pathlib import Path

from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from litestar import Litestar
from litestar.datastructures import CacheControlHeader, State
from litestar.middleware import DefineMiddleware
from litestar.static_files import create_static_files_router
from msgspec import Struct, structs

from headway_console.access.authentication import Authentication, Authenticator
from headway_console.access.guards import check_declared, guard, open_to_anyone
from headway_console.api import ENDPOINTS
from headway_console.api.endpoints import handler_of
from headway_console.api.openapi import document_handler
from headway_console.envelope import Envelope
from headway_console.feed import Feed
from headway_console.pages import HANDLERS, PAGES
from headway_console.pages.errors import answer_error
from headway_console.pages.live import Listening
from headway_console.settings import ConsoleSettings, host_of, is_loopback

_STATIC = Path(__file__).parent / "static"
# Room for definitions of thousands of manifests.
_MAX_BYTES = 4 * 1024 * 1024
_CACHE_SECONDS = 300


class Parts(Struct, frozen=True, kw_only=True):
    """The dependencies of the handlers, in the state of the application."""

    settings: ConsoleSettings
    authenticator: Authenticator
    database: Database
    feed: Feed
    origins: frozenset[str]
    listening: Listening
    broker: Broker


def make_application(parts: Parts) -> Litestar:
    """Build all routes; raises `RouteUndeclared` if one declares no role."""
    static = create_static_files_router(
        path="/static",
        directories=[_STATIC],
        opt=open_to_anyone(),
        cache_control=CacheControlHeader(max_age=_CACHE_SECONDS, private=True),
        include_in_schema=False,
    )
    app = Litestar(
        route_handlers=[*map(handler_of, ENDPOINTS), document_handler, *HANDLERS, static],
        guards=[guard],
        middleware=[DefineMiddleware(Authentication)],
        exception_handlers={Exception: answer_error},
        state=State({**structs.asdict(parts), "navigation": PAGES}),
        request_max_body_size=_MAX_BYTES,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    check_declared(app)
    return app


def enveloped(app: Litestar, settings: ConsoleSettings, *, port: int) -> Envelope:
    """Wrap the application in the host check and the security headers."""
    return Envelope(application=app, hosts=known_hosts(settings, port), secure=is_secure(settings))


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
        scheme = "https" if is_secure(settings) else "http"
        return frozenset({f"{scheme}://{host_of(settings.console_url)}"})
    return frozenset(f"http://{host}" for host in known_hosts(settings, port))


def is_secure(settings: ConsoleSettings) -> bool:
    """Tell whether people reach the console over HTTPS."""
    return (settings.console_url or "").startswith("https://")
