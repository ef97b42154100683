"""Finding out who asks."""

from datetime import datetime
from typing import Any

from headway_clock import new_nonce, utc_now
from litestar.connection import ASGIConnection
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from msgspec import Struct

from headway_console.access.attempts import Attempts, Network, address_of
from headway_console.access.issuer import Issuer, IssuerUnavailable, RoleRule, looks_like_jwt
from headway_console.access.roles import Person
from headway_console.access.sessions import Cookies, Revoked, Seal, Session
from headway_console.access.tickets import Tickets
from headway_console.access.tokens import Rejected, Tokens, fingerprint

SESSION = "session"
_BEARER = "bearer "


class Unknown(Struct, frozen=True, kw_only=True):
    """Nobody that we know, and why; `unavailable` if we could not find out."""

    reason: str
    unavailable: bool = False


class Local(Struct, frozen=True, kw_only=True):
    """The person at this machine: their token, and the tickets by which their browser signs in."""

    token: str
    tickets: Tickets


class Doorkeeper(Struct, frozen=True, kw_only=True):
    """Knows everybody who may come in."""

    tokens: Tokens
    seal: Seal
    cookies: Cookies
    session_seconds: float
    issuer: Issuer | None
    audience: str
    roles: RoleRule
    local: Local | None = None
    attempts: Attempts
    proxies: tuple[Network, ...] = ()
    signed_out: Revoked

    async def recognise(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Person | Unknown:
        """Who asks: by their token, or else by their cookie."""
        header = connection.headers.get("authorization")
        try:
            if header is not None:
                return await self._by_header(header)
            return self._by_cookie(connection.cookies.get(self.cookies.session))
        except Rejected as error:
            return Unknown(reason=str(error))
        except IssuerUnavailable as error:
            return Unknown(reason=f"the OIDC issuer does not answer: {error}", unavailable=True)

    def begin_attempt(self, connection: ASGIConnection[Any, Any, Any, Any], now: float) -> str:
        """Somebody tries to sign in; returns from where. Raises `TooManyAttempts`."""
        peer = connection.client.host if connection.client else ""
        address = address_of(peer, connection.headers, self.proxies)
        self.attempts.begin(address, now)
        return address

    async def person_with(self, token: str) -> Person:
        """Whose a token is; raises `Rejected` if it is nobody's."""
        if self.issuer is not None and looks_like_jwt(token):
            return self.person_of(await self.issuer.claims(token, audience=self.audience))
        return self.tokens.person(token, utc_now())

    def person_of(self, claims: dict[str, Any]) -> Person:
        """Whom the claims of a JWT describe. The name is what people are known by."""
        name = next(
            (str(claims[one]) for one in ("email", "preferred_username", "sub") if claims.get(one)),
            "unknown",
        )
        return Person(name=name[:200], role=self.roles.role_of(claims), by="oidc")

    def begin_session(self, person: Person, *, token: str, until: datetime) -> str:
        """The cookie of somebody who has signed in."""
        session = Session(
            id=new_nonce(),
            name=person.name,
            role=person.role,
            token=fingerprint(token) if token else "",
            until=until,
        )
        return self.seal.close(SESSION, session)

    def end_session(self, cookie: str) -> None:
        """Let nobody come in by a cookie any more, whoever has a copy of it."""
        now = utc_now()
        session = self.seal.open(SESSION, cookie, Session, now)
        if session is not None:
            self.signed_out.add(session.id, until=session.until, now=now)

    async def _by_header(self, header: str) -> Person:
        if header[: len(_BEARER)].lower() != _BEARER:
            raise Rejected("send the token as 'Authorization: Bearer <token>'")
        return await self.person_with(header[len(_BEARER) :].strip())

    def _by_cookie(self, cookie: str | None) -> Person:
        if cookie is None:
            raise Rejected("sign in, or send a token as 'Authorization: Bearer <token>'")
        now = utc_now()
        session = self.seal.open(SESSION, cookie, Session, now)
        if session is None or self.signed_out.has(session.id):
            raise Rejected("the session is over: sign in again")
        if session.token:
            return self.tokens.person_by(session.token, now, session=session.id)
        return Person(name=session.name, role=session.role, by="oidc", session=session.id)


class Authentication(AbstractAuthenticationMiddleware):
    """Puts who asks into the connection; what they may do is for the guard to say."""

    async def authenticate_request(
        self, connection: ASGIConnection[Any, Any, Any, Any]
    ) -> AuthenticationResult:
        """Who asks, or why nobody knows them."""
        doorkeeper: Doorkeeper = connection.app.state.doorkeeper
        found = await doorkeeper.recognise(connection)
        if isinstance(found, Person):
            return AuthenticationResult(user=found, auth=None)
        return AuthenticationResult(user=None, auth=found)
