"""Settings of the console."""

from ipaddress import ip_address
from urllib.parse import urlsplit

from msgspec import Struct


class ConsoleSettings(Struct, frozen=True, kw_only=True):
    """Read from `HEADWAY_*` and flags; see `headway_service_kit.settings`."""

    database_url: str
    # The role that it takes on to read; empty to read as the user of the URL.
    database_role: str = "headway_reader"
    nats_url: str
    nats_creds: str | None = None
    # How often NATS is asked for a sign of life: without three in a row the connection is made
    # anew, without nine the process ends.
    nats_ping_seconds: float = 3.0
    # How long after its last heartbeat a worker counts as alive, as the dispatcher is set.
    orphan_timeout_seconds: float = 60.0
    health_address: str = "127.0.0.1:0"
    # Where the API and the pages are served. Anything but loopback needs auth.
    console_address: str = "127.0.0.1:8080"
    # How people reach it from outside, as in https://headway.example.org; needed behind a proxy
    # that ends TLS, and to sign in at an OIDC issuer.
    console_url: str | None = None
    # Who may come in with a token, and with which role; see 'headway token new'.
    api_tokens_file: str | None = None
    # Signs the cookies of browser sessions: the same for all consoles behind one address. Without
    # it a new one at each start, which signs everybody out.
    session_key: str | None = None
    session_hours: float = 12.0
    # Whose JWTs are taken, and for whom they must be meant (without it, the client's id).
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    # Lets people sign in to the console at that issuer.
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_scopes: str = "openid profile email"
    # The claim that holds somebody's roles, dots for claims inside claims; and what its values
    # mean, as in 'sre=admin,developers=viewer'. A value that is a role by itself needs no entry.
    oidc_role_claim: str = "roles"
    oidc_roles: str = ""

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
