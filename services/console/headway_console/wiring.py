"""Putting the console together: the one place that knows all of its parts."""

import logging
from pathlib import Path

from asyncpg.exceptions import InsufficientPrivilegeError, InvalidParameterValueError
from headway.client.nats_control import NatsControl
from headway_clock import new_secret
from headway_contract.routes import Role
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_service_kit.service import Service, open_service
from headway_service_kit.settings import ServiceSettings
from msgspec import Struct

from headway_console.access.attempts import Attempts, read_networks
from headway_console.access.authentication import Doorkeeper, Local
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

logger = logging.getLogger(__name__)


class LocalPerson(Struct, frozen=True, kw_only=True):
    """The person at this machine, whom `up` lets in."""

    name: str
    token: str
    ticket_key: str
    role: Role = "admin"


class ConsoleService(Service):
    """The console as a service: its HTTP server stops before what it stands on."""

    def __init__(self, database: Database, broker: Broker) -> None:
        super().__init__("console", database, broker)
        self.server: HttpServer | None = None
        self.issuer: Issuer | None = None
        self.feed = Feed(database)
        self.port = 0
        self.listening = Listening(self.feed, database)
        self.control = NatsControl(broker)

    async def stop(self) -> None:
        """Stop everything."""
        await self.feed.stop()  # or the streams would keep the server from stopping
        if self.server is not None:
            await self.server.stop()
        if self.issuer is not None:
            await self.issuer.close()
        await super().stop()


async def start_console(
    settings: ConsoleSettings,
    *,
    local: LocalPerson | None = None,
    give_up_after: int | None = None,
) -> ConsoleService:
    """Connect, then serve."""
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
        doorkeeper = _doorkeeper(settings, service, tokens, local)
        app = make_application(
            Parts(
                settings=settings,
                doorkeeper=doorkeeper,
                control=service.control,
                database=service.database,
                feed=service.feed,
                origins=known_origins(settings, service.port),
                listening=service.listening,
                broker=service.broker,
            )
        )
        service.server = HttpServer(enveloped(app, settings, port=service.port), listening)
        await service.server.start()
        port = await service.answer_for_health(
            settings.health_address, live=[service.server.serves]
        )
    except BaseException:
        await service.stop()
        listening.close()
        raise
    logger.info("console runs on port %d, health on port %d", service.port, port)
    return service


async def _connect_reader(settings: ConsoleSettings) -> Database:
    """The database, by the role that can only read; without it as who we are, and as readers."""
    url, role = settings.database_url, settings.database_role
    try:
        return await connect_reader(url, role=role)
    except (InvalidParameterValueError, InsufficientPrivilegeError) as error:
        logger.warning(
            "reading without the role %r: %s; 'headway migrate' makes it, HEADWAY_DATABASE_ROLE "
            "may name another",
            role,
            error,
        )
        return await connect_reader(url, role="")


def _doorkeeper(
    settings: ConsoleSettings, service: ConsoleService, tokens: Tokens, local: LocalPerson | None
) -> Doorkeeper:
    return Doorkeeper(
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


def _local(person: LocalPerson | None) -> Local | None:
    if person is None:
        return None
    return Local(token=person.token, tickets=Tickets(person.ticket_key))


def _path(settings: ConsoleSettings) -> Path | None:
    return Path(settings.api_tokens_file) if settings.api_tokens_file else None


def _given(local: LocalPerson | None) -> tuple[Token, ...]:
    if local is None:
        return ()
    return (Token(name=local.name, role=local.role, sha256=fingerprint(local.token)),)
