"""Cookies that only we can have made: signed, with an end, and each for one purpose."""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from headway_contract.routes import Role
from msgspec import Struct

Sealed = TypeVar("Sealed", bound=Struct)


class Session(Struct, frozen=True, kw_only=True):
    """Somebody who has signed in with a browser.

    Who came with a token is looked up by its fingerprint at every request: where the file no
    longer has it, the session is over.
    """

    id: str
    name: str
    role: Role | None
    token: str = ""
    until: datetime


class SigningIn(Struct, frozen=True, kw_only=True):
    """Somebody who was sent to the OIDC issuer and is expected back."""

    state: str
    nonce: str
    verifier: str
    next: str
    until: datetime


SIGNING_IN_LASTS = timedelta(minutes=10)


class Seal:
    """Signs with one key; a signature for one purpose is worth nothing for another."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, purpose: str, content: Struct) -> str:
        """The content with its signature, fit for a cookie."""
        body = base64.urlsafe_b64encode(msgspec.json.encode(content)).rstrip(b"=").decode()
        return f"{body}.{self.sign(purpose, body)}"

    def open(self, purpose: str, sealed: str, kind: type[Sealed], now: datetime) -> Sealed | None:
        """The content, or none if the signature is not ours or its time is over."""
        body, _, signature = sealed.rpartition(".")
        if not hmac.compare_digest(self.sign(purpose, body).encode(), signature.encode()):
            return None
        try:
            data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            content = msgspec.json.decode(data, type=kind)
        except (binascii.Error, msgspec.DecodeError, ValueError):
            return None  # signed by us, but of another version
        until: datetime = content.until  # type: ignore[attr-defined]
        return content if until > now else None

    def sign(self, purpose: str, text: str) -> str:
        """The signature of a text."""
        message = f"{purpose}\n{text}".encode()
        digest = hmac.new(self._key, message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Revoked:
    """Ids of sessions and tickets that no longer count, until they would have ended anyway.

    They are known to this process alone: another console behind the same address takes a copy of
    the cookie until the session's end.
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
        """Whether an id is revoked."""
        return known in self._until


class Cookies(Struct, frozen=True, kw_only=True):
    """How our cookies are called and sent.

    Over HTTPS they are bound to the host by their name. Cookies of a machine's own servers are
    shared by all ports, so there the port is in the name.
    """

    session: str
    signing_in: str
    secure: bool

    @classmethod
    def made_for(cls, *, secure: bool, port: int) -> "Cookies":
        """Names for a console that is reached over HTTPS, or over plain HTTP at a port."""
        name = "__Host-headway" if secure else f"headway-{port}"
        return cls(session=name, signing_in=f"{name}-signing-in", secure=secure)
