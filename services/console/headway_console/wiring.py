"""Composition root of the console."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import httpx
from headway import Client
from headway_clock import new_secret, utc_now
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_postgres_kit.driver import InsufficientPrivilegeError, InvalidParameterValueError
from headway_service_kit.service import Service, open_service
from headway_service_kit.settings import ServiceSettings
from headway_tracing.log import get_logger
from litestar import Litestar
from litestar.datastructures import CacheControlHeader, State
from litestar.middleware import DefineMiddleware
from litestar.static_files import create_static_files_router
from msgspec import Struct, convert

from headway_console.access.attempts import Attempts, read_networks
from headway_console.access.authentication import Authentication, Authenticator
from headway_console.access.guards import guard, open_to_anyone
from headway_console.access.headers import security_headers
from headway_console.access.issuer import Issuer, check_oidc, read_roles
from headway_console.access.sessions import Cookies, Revoked, Seal, Tickets
from headway_console.access.tokens import Token, Tokens, fingerprint, new_token
from headway_console.api import ENDPOINTS, show_document
from headway_console.api.endpoints import handler_of
from headway_console.feed import Feed
from headway_console.pages import HANDLERS, NAVIGATION
from headway_console.pages.pauses import read_banner
from headway_console.pages.shell import answer_error
from headway_console.reading import connect_reader
from headway_console.server import HttpServer, listen
from headway_console.settings import ConsoleSettings, check_exposure, check_key

log = get_logger(__name__)

# Room for definitions of thousands of manifests.
_MAX_BYTES = 4 * 1024 * 1024
_CACHE_SECONDS = 300


class LocalCredentials(Struct, frozen=True, kw_only=True):
    """Credentials of the person at this machine, made by `up`."""

    name: str
    token: str
    ticket_key: str


class ConsoleService(Service):
    """The console as a service; its HTTP server stops before its dependencies."""

    def __init__(self, database: Database, broker: Broker) -> None:
        super().__init__("console", database, broker)
        self.server: HttpServer | None = None
        self.issuer: Issuer | None = None
        self.feed = Feed(database)
        self.port = 0

    async def stop(self) -> None:
        """Stop everything."""
        await self.feed.stop()  # open streams would keep the server from stopping
        if self.server is not None:
            await self.server.stop()
        if self.issuer is not None:
            await self.issuer.close()
        await super().stop()


async def start_console(
    settings: ConsoleSettings,
    *,
    local: LocalCredentials | None = None,
    give_up_after: int | None = None,
) -> ConsoleService:
    """Connect and serve."""
    check_exposure(settings)
    check_key(settings)
    check_oidc(settings)
    given: tuple[Token, ...] = ()
    if local is not None:
        given = (Token(name=local.name, role="admin", sha256=fingerprint(local.token)),)
    tokens = Tokens(Path(settings.api_tokens_file) if settings.api_tokens_file else None, given)
    async with AsyncExitStack() as on_failure:
        listening = listen(settings.console_address)
        on_failure.callback(listening.close)
        opened = await open_service(
            "console",
            convert(settings, ServiceSettings, from_attributes=True),
            give_up_after=give_up_after,
            connect=lambda: _connect_reader(settings),
        )
        service = ConsoleService(opened.database, opened.broker)
        service.port = listening.getsockname()[1]
        on_failure.push_async_callback(service.stop)
        service.issuer = Issuer(settings.oidc_issuer) if settings.oidc_issuer else None
        app = console_application(settings, service, tokens, local)
        service.server = HttpServer(app, listening)
        await service.server.start()
        port = await service.answer_for_health(
            settings.health_address, live=[service.server.serves]
        )
        on_failure.pop_all()
    log.info("console started", port=service.port, health_port=port)
    return service


def console_application(
    settings: ConsoleSettings,
    service: ConsoleService,
    tokens: Tokens,
    local: LocalCredentials | None = None,
) -> Litestar:
    """Return the application of a console: every route behind one guard."""
    authenticator = Authenticator(
        tokens=tokens,
        seal=Seal((settings.session_key or new_secret()).encode()),
        cookies=Cookies(secure=settings.is_secure, port=service.port),
        session_seconds=settings.session_hours * 3600,
        issuer=service.issuer,
        audience=settings.oidc_audience or settings.oidc_client_id or "",
        roles=read_roles(settings),
        local=None if local is None else Tickets(local.ticket_key, token=local.token),
        attempts=Attempts(),
        proxies=read_networks(settings.trusted_proxies),
        signed_out=Revoked(),
    )
    static = create_static_files_router(
        path="/static",
        directories=[Path(__file__).parent / "static"],
        opt=open_to_anyone(),
        cache_control=CacheControlHeader(max_age=_CACHE_SECONDS, private=True),
        include_in_schema=False,
    )
    parts = {
        "settings": settings,
        "authenticator": authenticator,
        "database": service.database,
        "feed": service.feed,
        # Without a port, the application is called in this process.
        "hosts": settings.known_hosts(service.port) if service.port else frozenset(),
        "origins": settings.known_origins(service.port),
        "broker": service.broker,
        "navigation": NAVIGATION,
    }
    return Litestar(
        route_handlers=[*map(handler_of, ENDPOINTS), show_document, *HANDLERS, static],
        guards=[guard],
        before_request=read_banner,
        middleware=[DefineMiddleware(Authentication)],
        before_send=[security_headers(secure=settings.is_secure)],
        exception_handlers={Exception: answer_error},
        state=State(parts),
        request_max_body_size=_MAX_BYTES,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


async def _connect_reader(settings: ConsoleSettings) -> Database:
    """Connect with the read-only role, or without it in read-only transactions."""
    url, role = settings.database_url, settings.database_role
    try:
        return await connect_reader(url, role=role)
    except (InvalidParameterValueError, InsufficientPrivilegeError) as error:
        log.warning(
            "read-only role unavailable; run 'headway migrate' or set HEADWAY_DATABASE_ROLE",
            role=role,
            error=error,
        )
        return await connect_reader(url, role="")


@asynccontextmanager
async def open_client(
    database_url: str, nats_url: str, *, actor: str, **options: Any
) -> AsyncIterator[Client]:
    """Connect a console in this process, and open a client of it."""
    async with AsyncExitStack() as opened:
        database = await Database.connect(database_url, name="headway-client", max_connections=4)
        opened.push_async_callback(database.close)
        broker = await Broker.connect(nats_url, name="headway-client")
        opened.push_async_callback(broker.close)
        yield await opened.enter_async_context(client_of(database, broker, actor=actor, **options))


@asynccontextmanager
async def client_of(
    database: Database,
    broker: Broker,
    *,
    actor: str,
    now: Callable[[], datetime] = utc_now,
    **settings: Any,
) -> AsyncIterator[Client]:
    """Open a client of a console that uses these connections; the audit names the actor."""
    token, entry = new_token(actor, "admin")
    service = ConsoleService(database, broker)
    app = console_application(
        ConsoleSettings(database_url="", nats_url="", **settings), service, Tokens(None, (entry,))
    )
    transport = httpx.ASGITransport(app=cast("Any", app))
    try:
        async with Client("http://127.0.0.1", token=token, transport=transport, now=now) as client:
            yield client
    finally:
        await service.feed.stop()
