"""Composition root of the console."""

from pathlib import Path

from asyncpg.exceptions import InsufficientPrivilegeError, InvalidParameterValueError
from headway_clock import new_secret
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_service_kit.service import Service, open_service
from headway_service_kit.settings import ServiceSettings
from headway_tracing.log import get_logger
from litestar import Litestar
from msgspec import Struct, convert

from headway_console.access.attempts import Attempts, read_networks
from headway_console.access.authentication import Authenticator
from headway_console.access.issuer import Issuer, check_oidc, read_roles
from headway_console.access.sessions import Cookies, Revoked, Seal, Tickets
from headway_console.access.tokens import Token, Tokens, fingerprint
from headway_console.application import known_hosts, known_origins, make_application
from headway_console.envelope import Envelope
from headway_console.feed import Feed
from headway_console.reading import connect_reader
from headway_console.server import HttpServer, listen
from headway_console.settings import ConsoleSettings, check_exposure, check_key

log = get_logger(__name__)


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
    listening = listen(settings.console_address)
    try:
        opened = await open_service(
            "console",
            convert(settings, ServiceSettings, from_attributes=True),
            give_up_after=give_up_after,
            connect=lambda: _connect_reader(settings),
        )
    except BaseException:
        listening.close()
        raise
    service = ConsoleService(opened.database, opened.broker)
    service.port = listening.getsockname()[1]
    try:
        service.issuer = Issuer(settings.oidc_issuer) if settings.oidc_issuer else None
        app = Envelope(
            application=console_application(settings, service, tokens, local),
            hosts=known_hosts(settings, service.port),
            secure=settings.is_secure,
        )
        service.server = HttpServer(app, listening)
        await service.server.start()
        port = await service.answer_for_health(
            settings.health_address, live=[service.server.serves]
        )
    except BaseException:
        await service.stop()
        listening.close()
        raise
    log.info("console started", port=service.port, health_port=port)
    return service


def console_application(
    settings: ConsoleSettings,
    service: ConsoleService,
    tokens: Tokens,
    local: LocalCredentials | None = None,
) -> Litestar:
    """Return the application of a console that has its connections."""
    authenticator = Authenticator(
        tokens=tokens,
        seal=Seal((settings.session_key or new_secret()).encode()),
        cookies=Cookies.made_for(secure=settings.is_secure, port=service.port),
        session_seconds=settings.session_hours * 3600,
        issuer=service.issuer,
        audience=settings.oidc_audience or settings.oidc_client_id or "",
        roles=read_roles(settings),
        local=None if local is None else Tickets(local.ticket_key, token=local.token),
        attempts=Attempts(),
        proxies=read_networks(settings.trusted_proxies),
        signed_out=Revoked(),
    )
    return make_application(
        settings=settings,
        authenticator=authenticator,
        database=service.database,
        feed=service.feed,
        origins=known_origins(settings, service.port),
        broker=service.broker,
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
