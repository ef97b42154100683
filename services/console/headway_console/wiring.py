"""Composition root of the console."""

from pathlib import Path

from asyncpg.exceptions import InsufficientPrivilegeError, InvalidParameterValueError
from headway_clock import new_secret
from headway_contract.http import Role
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_service_kit.service import Service, open_service
from headway_service_kit.settings import ServiceSettings
from headway_tracing.log import get_logger
from litestar import Litestar
from msgspec import Struct

from headway_console.access.attempts import Attempts, read_networks
from headway_console.access.authentication import Authenticator, Local
from headway_console.access.issuer import Issuer, check_oidc, read_roles
from headway_console.access.sessions import Cookies, Revoked, Seal
from headway_console.access.tickets import Tickets
from headway_console.access.tokens import Token, Tokens, fingerprint
from headway_console.application import (
    Parts,
    enveloped,
    is_secure,
    known_origins,
    make_application,
)
from headway_console.feed import Feed
from headway_console.pages.live import Listening
from headway_console.reading import connect_reader
from headway_console.server import HttpServer, listen
from headway_console.settings import ConsoleSettings, check_exposure, check_key

log = get_logger(__name__)


class LocalCredentials(Struct, frozen=True, kw_only=True):
    """Credentials of the person at this machine, made by `up`."""

    name: str
    token: str
    ticket_key: str
    role: Role = "admin"


class ConsoleService(Service):
    """The console as a service; its HTTP server stops before its dependencies."""

    def __init__(self, database: Database, broker: Broker) -> None:
        super().__init__("console", database, broker)
        self.server: HttpServer | None = None
        self.issuer: Issuer | None = None
        self.feed = Feed(database)
        self.port = 0
        self.listening = Listening(self.feed, database)

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
    tokens = Tokens(_path(settings), _given(local))
    listening = listen(settings.console_address)
    try:
        opened = await open_service(
            "console",
            ServiceSettings(
                database_url=settings.database_url,
                nats_url=settings.nats_url,
                nats_creds=settings.nats_creds,
                nats_ping_seconds=settings.nats_ping_seconds,
            ),
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
        app = console_application(settings, service, tokens, local)
        service.server = HttpServer(enveloped(app, settings, port=service.port), listening)
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
    return make_application(
        Parts(
            settings=settings,
            authenticator=_authenticator(settings, service, tokens, local),
            database=service.database,
            feed=service.feed,
            origins=known_origins(settings, service.port),
            listening=service.listening,
            broker=service.broker,
        )
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


def _authenticator(
    settings: ConsoleSettings,
    service: ConsoleService,
    tokens: Tokens,
    local: LocalCredentials | None,
) -> Authenticator:
    return Authenticator(
        tokens=tokens,
        seal=Seal((settings.session_key or new_secret()).encode()),
        cookies=Cookies.made_for(secure=is_secure(settings), port=service.port),
        session_seconds=settings.session_hours * 3600,
        issuer=service.issuer,
        audience=settings.oidc_audience or settings.oidc_client_id or "",
        roles=read_roles(settings),
        local=_local(local),
        attempts=Attempts(),
        proxies=read_networks(settings.trusted_proxies),
        signed_out=Revoked(),
    )


def _local(person: LocalCredentials | None) -> Local | None:
    if person is None:
        return None
    return Local(token=person.token, tickets=Tickets(person.ticket_key))


def _path(settings: ConsoleSettings) -> Path | None:
    return Path(settings.api_tokens_file) if settings.api_tokens_file else None


def _given(local: LocalCredentials | None) -> tuple[Token, ...]:
    if local is None:
        return ()
    return (Token(name=local.name, role=local.role, sha256=fingerprint(local.token)),)
