"""Find the person behind a request."""

from datetime import datetime
from typing import Any, TypeAlias

from headway_clock import new_nonce, utc_now
from litestar.connection import ASGIConnection
from litestar.middleware import AbstractAuthenticationMiddleware, AuthenticationResult
from msgspec import Struct

from headway_console.access.attempts import Attempts, Network, address_of
from headway_console.access.issuer import Issuer, IssuerUnavailable, RoleRule
from headway_console.access.roles import Person
from headway_console.access.sessions import Cookies, Revoked, Seal, Session, Tickets
from headway_console.access.tokens import Rejected, Tokens, fingerprint

Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]

_SESSION = "session"
_BEARER = "bearer "


class SignInNeeded(Exception):
    """The request is not authenticated; `unavailable` if the issuer does not answer."""

    unavailable = False


class Authenticator(Struct, frozen=True, kw_only=True):
    """Authenticates requests by token or by session cookie."""

    tokens: Tokens
    seal: Seal
    cookies: Cookies
    session_seconds: float
    issuer: Issuer | None
    audience: str
    roles: RoleRule
    local: Tickets | None = None
    attempts: Attempts
    proxies: tuple[Network, ...] = ()
    signed_out: Revoked

    async def recognise(self, connection: Connection) -> Person | SignInNeeded:
        """Return the person by their token, or else by their cookie."""
        header = connection.headers.get("authorization")
        try:
            if header is not None:
                if header[: len(_BEARER)].lower() != _BEARER:
                    raise Rejected("send the token as 'Authorization: Bearer <token>'")
                token = header[len(_BEARER) :].strip()
                if self.issuer is not None and token.count(".") == 2:  # a JWT
                    return self.person_of(await self.issuer.claims(token, audience=self.audience))
                return self.tokens.person(token, utc_now())
            return self._by_cookie(connection)
        except Rejected as error:
            return SignInNeeded(str(error))
        except IssuerUnavailable as error:
            unknown = SignInNeeded(f"the OIDC issuer does not answer: {error}")
            unknown.unavailable = True
            return unknown

    def signed_in(self, connection: Connection) -> Person | None:
        """Return the person of the session cookie, for pages of errors before authentication."""
        try:
            return self._by_cookie(connection)
        except Rejected:
            return None

    def begin_attempt(self, connection: Connection, now: float) -> str:
        """Count a sign-in attempt and return its address; raises `TooManyAttempts`."""
        peer = connection.client.host if connection.client else ""
        address = address_of(peer, connection.headers, self.proxies)
        self.attempts.begin(address, now)
        return address

    def person_of(self, claims: dict[str, Any]) -> Person:
        """Return the person that the claims of a JWT describe."""
        names = (claims.get(key) for key in ("email", "preferred_username", "sub"))
        name = str(next(filter(None, names), "unknown"))
        return Person(name=name[:200], role=self.roles.role_of(claims), by="oidc")

    def begin_session(self, person: Person, *, token: str, until: datetime) -> str:
        """Make the session cookie of a person who signed in."""
        session = Session(
            id=new_nonce(),
            name=person.name,
            role=person.role,
            token=fingerprint(token) if token else "",
            until=until,
        )
        return self.seal.close(_SESSION, session)

    def end_session(self, cookie: str) -> None:
        """Revoke a session cookie and every copy of it."""
        now = utc_now()
        session = self.seal.open(_SESSION, cookie, Session, now)
        if session is not None:
            self.signed_out.add(session.id, until=session.until, now=now)

    def _by_cookie(self, connection: Connection) -> Person:
        cookie = connection.cookies.get(self.cookies.name("session"))
        if cookie is None:
            raise Rejected("sign in, or send a token as 'Authorization: Bearer <token>'")
        now = utc_now()
        session = self.seal.open(_SESSION, cookie, Session, now)
        if session is None or self.signed_out.has(session.id):
            raise Rejected("the session has ended: sign in again")
        if session.token:
            return self.tokens.person_by(session.token, now, session=session.id)
        return Person(name=session.name, role=session.role, by="oidc", session=session.id)


class Authentication(AbstractAuthenticationMiddleware):
    """Store the person in the connection; the guard authorizes."""

    async def authenticate_request(self, connection: Connection) -> AuthenticationResult:
        """Return the person, or why there is none."""
        authenticator: Authenticator = connection.app.state.authenticator
        found = await authenticator.recognise(connection)
        if isinstance(found, Person):
            return AuthenticationResult(user=found, auth=None)
        return AuthenticationResult(user=None, auth=found)
