"""Settings of the console."""

from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from headway_service_kit import settings as kit
from msgspec import Meta, Struct

_MIN_KEY = 32


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: kit.DatabaseUrl
    database_role: Annotated[
        str, Meta(description="Database role for reading; empty to read as the user of the URL.")
    ] = "headway_reader"
    nats_url: kit.NatsUrl
    nats_creds: kit.NatsCreds = None
    nats_ping_seconds: kit.NatsPing = 3.0
    orphan_timeout_seconds: Annotated[
        kit.Above0,
        Meta(
            description="Time after its last heartbeat during which a worker counts as alive; use "
            "the value of the dispatcher."
        ),
    ] = 60.0
    health_address: kit.HealthAddress = "127.0.0.1:0"
    console_address: Annotated[
        str, Meta(description="Address of the API and the pages. Anything but loopback needs auth.")
    ] = "127.0.0.1:8080"
    jaeger_url: Annotated[
        str | None, Meta(description="URL of Jaeger; runs link to their traces.")
    ] = None
    console_url: Annotated[
        str | None,
        Meta(
            description="Public URL of the console, for example `https://headway.example.org`; "
            "needed behind a proxy that terminates TLS, and for sign-in at an OIDC issuer."
        ),
    ] = None
    api_tokens_file: Annotated[
        str | None,
        Meta(description="File with the API tokens and their roles; see `headway token new`."),
    ] = None
    session_key: Annotated[
        str | None,
        Meta(
            description="Key that signs session cookies; the same for all consoles behind one "
            "address. Without it each start makes a new key, which signs all users out.",
            extra=kit.SECRET,
        ),
    ] = None
    trusted_proxies: Annotated[
        str,
        Meta(
            description="Proxies whose `X-Forwarded-For` is trusted, as addresses or networks: "
            "`10.0.0.0/8, 192.168.1.7`. Failed sign-ins are counted by address."
        ),
    ] = ""
    session_hours: Annotated[kit.Above0, Meta(description="Lifetime of a browser session.")] = 12.0
    oidc_issuer: Annotated[str | None, Meta(description="OIDC issuer whose JWTs are accepted.")] = (
        None
    )
    oidc_audience: Annotated[
        str | None, Meta(description="Required audience of JWTs; defaults to the client id.")
    ] = None
    oidc_client_id: Annotated[
        str | None, Meta(description="Client id for sign-in at the issuer.")
    ] = None
    oidc_client_secret: Annotated[
        str | None, Meta(description="Client secret for sign-in at the issuer.", extra=kit.SECRET)
    ] = None
    oidc_scopes: Annotated[str, Meta(description="Scopes requested at the issuer.")] = (
        "openid profile email"
    )
    oidc_role_claim: Annotated[
        str, Meta(description="Claim that holds the roles of a person; dots for nested claims.")
    ] = "roles"
    oidc_roles: Annotated[
        str,
        Meta(
            description="Roles of the values of that claim: `sre=admin,developers=viewer`. A value "
            "that is itself a role needs no entry."
        ),
    ] = ""

    @property
    def is_secure(self) -> bool:
        """Tell whether people reach the console over HTTPS."""
        return (self.console_url or "").startswith("https://")

    def known_hosts(self, port: int) -> frozenset[str]:
        """Return the accepted values of the Host header; empty accepts any.

        On loopback only local names are accepted, against DNS rebinding by foreign pages. Elsewhere
        every request needs a credential, so any name is accepted.
        """
        if not is_loopback(self.console_address.rpartition(":")[0]):
            return frozenset()
        ours = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
        return frozenset(ours | ({host_of(self.console_url)} if self.console_url else set()))

    def known_origins(self, port: int) -> frozenset[str]:
        """Return the origins of this console; empty if its URL is not configured."""
        if self.console_url:
            scheme = "https" if self.is_secure else "http"
            return frozenset({f"{scheme}://{host_of(self.console_url)}"})
        return frozenset(f"http://{host}" for host in self.known_hosts(port))


class AuthMissing(Exception):
    """The console would be open to the network without authentication."""


def check_exposure(settings: ConsoleSettings) -> None:
    """Raise `AuthMissing` if the console listens beyond this machine without authentication."""
    host = settings.console_address.rpartition(":")[0]
    if settings.api_tokens_file or settings.oidc_issuer or is_loopback(host):
        return
    raise AuthMissing(
        f"HEADWAY_CONSOLE_ADDRESS={settings.console_address} is reachable from other machines, and "
        "no auth is configured: set HEADWAY_API_TOKENS_FILE ('headway token new' makes entries) or "
        "HEADWAY_OIDC_ISSUER, or listen on 127.0.0.1"
    )


def check_key(settings: ConsoleSettings) -> None:
    """Raise `InvalidSettings` for a short session key."""
    if settings.session_key is not None and len(settings.session_key) < _MIN_KEY:
        raise kit.InvalidSettings(
            f"HEADWAY_SESSION_KEY has fewer than {_MIN_KEY} characters: make one with "
            "'openssl rand -hex 32'"
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host; an empty host means all interfaces."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(url: str) -> str:
    """Return the host of a URL, with its port if there is one."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()
