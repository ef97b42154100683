"""The application: every route, behind one guard."""

from pathlib import Path
from typing import Any

from headway.client.control import Control
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from litestar import Litestar
from litestar.datastructures import CacheControlHeader, State
from litestar.middleware import DefineMiddleware
from litestar.static_files import create_static_files_router
from msgspec import Struct

from headway_console.access.authentication import Authentication, Doorkeeper
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
# Definitions of thousands of manifests fit; NATS takes about a megabyte by default.
_MOST_BYTES = 4 * 1024 * 1024
_FRESH_SECONDS = 300


class Parts(Struct, frozen=True, kw_only=True):
    """What the handlers stand on; they find it in the state of the application."""

    settings: ConsoleSettings
    doorkeeper: Doorkeeper
    control: Control
    database: Database
    feed: Feed
    origins: frozenset[str]
    listening: Listening
    broker: Broker


def make_application(parts: Parts) -> Litestar:
    """All routes; raises `RouteUndeclared` if one does not say whom it is for."""
    static = create_static_files_router(
        path="/static",
        directories=[_STATIC],
        opt=open_to_anyone(),
        cache_control=CacheControlHeader(max_age=_FRESH_SECONDS, private=True),
        include_in_schema=False,
    )
    app = Litestar(
        route_handlers=[*map(handler_of, ENDPOINTS), document_handler, *HANDLERS, static],
        guards=[guard],
        middleware=[DefineMiddleware(Authentication)],
        exception_handlers={Exception: answer_error},
        state=State({**_fields(parts), "navigation": PAGES}),
        request_max_body_size=_MOST_BYTES,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    check_declared(app)
    return app


def enveloped(app: Litestar, settings: ConsoleSettings, *, port: int) -> Envelope:
    """The application with the check of the host and the headers around it."""
    return Envelope(application=app, hosts=known_hosts(settings, port), secure=is_secure(settings))


def known_hosts(settings: ConsoleSettings, port: int) -> frozenset[str]:
    """By which names we may be called.

    On loopback only by our own, for a foreign page could reach us by a name that its server has
    made point at this machine. Elsewhere by any: there nobody comes in by being near.
    """
    if not is_loopback(settings.console_address.rpartition(":")[0]):
        return frozenset()
    ours = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(ours | ({host_of(settings.console_url)} if settings.console_url else set()))


def known_origins(settings: ConsoleSettings, port: int) -> frozenset[str]:
    """Which pages are ours; none if nobody has said how we are called."""
    if settings.console_url:
        scheme = "https" if is_secure(settings) else "http"
        return frozenset({f"{scheme}://{host_of(settings.console_url)}"})
    return frozenset(f"http://{host}" for host in known_hosts(settings, port))


def is_secure(settings: ConsoleSettings) -> bool:
    """Whether people reach us over HTTPS."""
    return (settings.console_url or "").startswith("https://")


def _fields(parts: Parts) -> dict[str, Any]:
    return {name: getattr(parts, name) for name in parts.__struct_fields__}
