"""Signed cookies and sign-in links, each with an expiry and for one purpose.

`up` and `headway sign-in` make links for the person at this machine, with a key in the data folder
that is new at every start, so that an old link from a log or a shell history does not work. Each
works once, for ten minutes.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from headway_clock import new_secret
from headway_contract.http import Role
from msgspec import Struct

if TYPE_CHECKING:
    from litestar.datastructures import Cookie

Sealed = TypeVar("Sealed", bound=Struct)
CookiePurpose = Literal["session", "signing-in", "flash"]

SIGN_IN_LASTS = timedelta(minutes=10)
_TICKET = "local sign-in"


class Session(Struct, frozen=True, kw_only=True):
    """A browser session; it ends when the file of tokens no longer has its token."""

    id: str
    name: str
    role: Role | None
    token: str = ""
    until: datetime


class SigningIn(Struct, frozen=True, kw_only=True):
    """A sign-in at the OIDC issuer that has not returned yet."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: datetime


class Seal:
    """Signs with one key; a signature is valid for one purpose."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, purpose: str, content: Struct) -> str:
        """Serialize and sign content for a cookie."""
        body = base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()
        return f"{body}.{self.sign(purpose, body)}"

    def open(self, purpose: str, sealed: str, kind: type[Sealed], now: datetime) -> Sealed | None:
        """Return the content, or `None` if the signature is invalid or expired."""
        body, _, signature = sealed.rpartition(".")
        if not hmac.compare_digest(self.sign(purpose, body).encode(), signature.encode()):
            return None
        try:
            data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            content = msgspec.json.decode(data, type=kind)
        except (binascii.Error, msgspec.DecodeError, ValueError):
            return None  # signed by another version
        until: datetime = content.until  # type: ignore[attr-defined]
        return content if until > now else None

    def sign(self, purpose: str, text: str) -> str:
        """Sign a text."""
        message = f"{purpose}\n{text}".encode()
        digest = hmac.new(self._key, message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Revoked:
    """Revoked ids of sessions and tickets, kept until they expire.

    Each process has its own: another console behind the same address accepts a copy of the cookie
    until the session expires.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._until: dict[str, datetime] = {}

    def add(self, revoked: str, *, until: datetime, now: datetime) -> None:
        """Revoke an id."""
        if len(self._until) >= self._most:
            self._until = {known: at for known, at in self._until.items() if at > now}
        while len(self._until) >= self._most:
            self._until.pop(next(iter(self._until)))
        self._until[revoked] = until

    def has(self, known: str) -> bool:
        """Tell whether an id is revoked."""
        return known in self._until


class Cookies(Struct, frozen=True, kw_only=True):
    """Names and flags of the cookies.

    Over HTTPS the name prefix binds them to the host. Over plain HTTP the name contains the port,
    because all ports of a host share cookies.
    """

    secure: bool
    port: int

    def name(self, purpose: CookiePurpose) -> str:
        """Return the name for HTTPS, or for plain HTTP at a port."""
        host = "__Host-headway" if self.secure else f"headway-{self.port}"
        return host if purpose == "session" else f"{host}-{purpose}"

    def make(
        self, purpose: CookiePurpose, value: str = "", lasts: timedelta = timedelta(0)
    ) -> "Cookie":
        """Make a cookie; without a lifetime it deletes the one that the browser has."""
        # Not above: commands import this module, and the framework takes a fifth of a second.
        from litestar.datastructures import Cookie  # noqa: PLC0415

        flags: Any = {"path": "/", "secure": self.secure, "httponly": True, "samesite": "lax"}
        age = int(lasts.total_seconds())
        return Cookie(key=self.name(purpose), value=value, max_age=age, **flags)


class _Ticket(Struct, frozen=True, kw_only=True):
    id: str
    until: datetime


def sign_in_path(key: str, now: datetime) -> str:
    """Make the path of a link that signs the person in."""
    ticket = _Ticket(id=new_secret(), until=now + SIGN_IN_LASTS)
    return f"/sign-in/local/{Seal(key.encode()).close(_TICKET, ticket)}"


class Tickets:
    """Redeems tickets that were made with the key, each once, for the person of a token."""

    def __init__(self, key: str, *, token: str) -> None:
        self.token = token
        self._seal = Seal(key.encode())
        self._used = Revoked()

    def redeem(self, sealed: str, now: datetime) -> bool:
        """Use a ticket; returns false if it is invalid, expired or used."""
        ticket = self._seal.open(_TICKET, sealed, _Ticket, now)
        if ticket is None or self._used.has(ticket.id):
            return False
        self._used.add(ticket.id, until=ticket.until, now=now)
        return True
