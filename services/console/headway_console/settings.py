"""Settings of the console."""

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from headway_service_kit.settings import (
    SECRET,
    Above0,
    DatabaseUrl,
    HealthAddress,
    InvalidSettings,
    NatsCreds,
    NatsPing,
    NatsUrl,
)
from msgspec import Meta, Struct

_SHORTEST_KEY = 32


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: DatabaseUrl
    database_role: Annotated[
        str,
        Meta(
            description="The role that it takes on to read; empty to read as the user of the URL."
        ),
    ] = "headway_reader"
    nats_url: NatsUrl
    nats_creds: NatsCreds = None
    nats_ping_seconds: NatsPing = 3.0
    orphan_timeout_seconds: Annotated[
        Above0,
        Meta(
            description="How long after its last heartbeat a worker counts as alive, as the "
            "dispatcher is set."
        ),
    ] = 60.0
    health_address: HealthAddress = "127.0.0.1:0"
    console_address: Annotated[
        str,
        Meta(
            description="Where the API and the pages are served. Anything but loopback needs auth."
        ),
    ] = "127.0.0.1:8080"
    jaeger_url: Annotated[
        str | None,
        Meta(description="Where people look at traces in Jaeger; runs link to theirs there."),
    ] = None
    console_url: Annotated[
        str | None,
        Meta(
            description="How people reach it from outside, as in `https://headway.example.org`; "
            "needed behind a proxy that ends TLS, and to sign in at an OIDC issuer."
        ),
    ] = None
    api_tokens_file: Annotated[
        str | None,
        Meta(
            description="The file of who may come in with a token, and with which role; see "
            "`headway token new`."
        ),
    ] = None
    session_key: Annotated[
        str | None,
        Meta(
            description="Signs the cookies of browser sessions: the same for all consoles behind "
            "one address. Without it a new one at each start, which signs everybody out.",
            extra=SECRET,
        ),
    ] = None
    trusted_proxies: Annotated[
        str,
        Meta(
            description="Proxies that are believed when they say whom a request comes from "
            "(`X-Forwarded-For`), as addresses or networks: `10.0.0.0/8, 192.168.1.7`. Failed "
            "sign-ins are counted by address."
        ),
    ] = ""
    session_hours: Annotated[Above0, Meta(description="How long a browser session lasts.")] = 12.0
    oidc_issuer: Annotated[str | None, Meta(description="Whose JWTs are taken.")] = None
    oidc_audience: Annotated[
        str | None,
        Meta(description="For whom the JWTs must be meant; without it, the client's id."),
    ] = None
    oidc_client_id: Annotated[
        str | None, Meta(description="Lets people sign in to the console at that issuer.")
    ] = None
    oidc_client_secret: Annotated[
        str | None, Meta(description="The secret of that client.", extra=SECRET)
    ] = None
    oidc_scopes: Annotated[str, Meta(description="What is asked for at the issuer.")] = (
        "openid profile email"
    )
    oidc_role_claim: Annotated[
        str,
        Meta(description="The claim that holds somebody's roles, dots for claims inside claims."),
    ] = "roles"
    oidc_roles: Annotated[
        str,
        Meta(
            description="What the values of that claim mean, as in `sre=admin,developers=viewer`. "
            "A value that is a role by itself needs no entry."
        ),
    ] = ""

    @property
    def has_auth(self) -> bool:
        """Whether anybody could be told from anybody else."""
        return bool(self.api_tokens_file or self.oidc_issuer)


class AuthMissing(Exception):
    """The console would be open to a network, for everybody."""


def check_exposure(settings: ConsoleSettings) -> None:
    """Refuse to listen beyond this machine without knowing who comes."""
    host = settings.console_address.rpartition(":")[0]
    if settings.has_auth or is_loopback(host):
        return
    raise AuthMissing(
        f"HEADWAY_CONSOLE_ADDRESS={settings.console_address} can be reached from other machines, "
        "and no auth is configured: set HEADWAY_API_TOKENS_FILE ('headway token new' makes its "
        "entries) or HEADWAY_OIDC_ISSUER, or listen on 127.0.0.1"
    )


def check_key(settings: ConsoleSettings) -> None:
    """Refuse a key that could be guessed."""
    if settings.session_key is not None and len(settings.session_key) < _SHORTEST_KEY:
        raise InvalidSettings(
            f"HEADWAY_SESSION_KEY has fewer than {_SHORTEST_KEY} characters: make one with "
            "'openssl rand -hex 32'"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; no host means all of them."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """The host of a URL, with its port if it names one."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()
