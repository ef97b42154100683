"""An OIDC issuer: discovery, keys, and the claims of its JWTs.

Only asymmetric signatures are accepted: with a shared secret, or none, anybody who knows the public
key could sign. Keys are cached. A token with an unknown key id fetches them again, at a limited
rate, because anybody can invent key ids.
"""

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import msgspec
from headway_clock import monotonic
from headway_contract.http import ROLES, Role
from headway_service_kit.settings import InvalidSettings
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_console.access.tokens import Rejected
from headway_console.settings import ConsoleSettings, is_loopback

log = get_logger(__name__)

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
_REQUIRED = ["exp", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 30
_ANSWER_SECONDS = 5.0
_FETCH_AGAIN_SECONDS = 30.0
_KEYS_LAST_SECONDS = 3600.0


class IssuerUnavailable(Exception):
    """The issuer does not answer, or its answer is unusable."""


class Discovered(Struct, frozen=True, kw_only=True):
    """The used part of a discovery document."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class KeySet(Struct, frozen=True, kw_only=True):
    """The public keys of an issuer."""

    keys: list[dict[str, Any]] = []


class Issuer:
    """A client of one issuer."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.AsyncClient(timeout=_ANSWER_SECONDS)
        self._discovered: Discovered | None = None
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried_at: float | None = None
        self._fetching = asyncio.Lock()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def discover(self) -> Discovered:
        """Return the endpoints of the issuer, fetched once."""
        if self._discovered is None:
            where = f"{self.url.rstrip('/')}/.well-known/openid-configuration"
            found = await self._get(where, Discovered)
            if found.issuer.rstrip("/") != self.url.rstrip("/"):
                raise IssuerUnavailable(
                    f"{where} describes {found.issuer!r}, not {self.url!r}: set "
                    "HEADWAY_OIDC_ISSUER exactly as the issuer does"
                )
            self._discovered = found
        return self._discovered

    async def claims(self, token: str, *, audience: str) -> dict[str, Any]:
        """Verify a JWT and return its claims; raises `Rejected`."""
        key = await self._key(_key_id(token))
        if key is None:
            raise Rejected("the JWT is signed with a key that the issuer does not publish")
        issuer = (await self.discover()).issuer
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                key=key.key,
                algorithms=list(ALGORITHMS),
                audience=audience,
                issuer=issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": _REQUIRED, "verify_signature": True},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise Rejected(f"the JWT is not valid: {error}") from error
        return found

    async def exchange(self, code: str, *, verifier: str, settings: ConsoleSettings) -> str:
        """Exchange an authorization code for an id token."""
        endpoint = (await self.discover()).token_endpoint
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_url(settings),
            "client_id": settings.oidc_client_id or "",
            "code_verifier": verifier,
        }
        secret = settings.oidc_client_secret
        auth = httpx.BasicAuth(settings.oidc_client_id or "", secret) if secret else None
        try:
            reply = await self._client.post(
                endpoint, data=form, auth=auth or httpx.USE_CLIENT_DEFAULT
            )
            answer = msgspec.json.decode(reply.content)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise IssuerUnavailable(f"{endpoint}: {error or type(error).__name__}") from error
        if not reply.is_success or not isinstance(answer, dict) or "id_token" not in answer:
            said = answer.get("error") if isinstance(answer, dict) else None
            raise Rejected(f"the issuer gave no id token: {said or reply.status_code}")
        return str(answer["id_token"])

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key; a cached one stays valid while the issuer does not answer."""
        async with self._fetching:
            is_known = key_id in self._keys
            lasts = _KEYS_LAST_SECONDS if is_known else _FETCH_AGAIN_SECONDS
            if self._tried_at is None or monotonic() - self._tried_at > lasts:
                self._tried_at = monotonic()
                try:
                    self._keys = await self._fetch_keys()
                except IssuerUnavailable as error:
                    if not is_known:
                        self._tried_at = self._tried_at if self._keys else None
                        raise
                    log.warning("OIDC keys not refreshed", issuer=self.url, error=error)
        return self._keys.get(key_id)

    async def _fetch_keys(self) -> dict[str, jwt.PyJWK]:
        where = (await self.discover()).jwks_uri
        found = await self._get(where, KeySet)
        keys: dict[str, jwt.PyJWK] = {}
        for key in found.keys:
            if key.get("use", "sig") != "sig" or key.get("kty") == "oct":
                continue
            try:
                keys[str(key.get("kid", ""))] = jwt.PyJWK.from_dict(key)
            except (jwt.PyJWTError, ValueError) as error:
                log.info("OIDC key ignored", url=where, error=error)
        return keys

    async def _get(self, url: str, kind: type[Any]) -> Any:
        try:
            reply = await self._client.get(url)
            reply.raise_for_status()
            return msgspec.json.decode(reply.content, type=kind)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
            raise IssuerUnavailable(f"{url}: {error or type(error).__name__}") from error


def redirect_url(settings: ConsoleSettings) -> str:
    """Return the URL to which the issuer redirects."""
    return f"{(settings.console_url or '').rstrip('/')}/sign-in/oidc/back"


def challenge_of(verifier: str) -> str:
    """Return the PKCE challenge (S256) of a verifier."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _key_id(token: str) -> str:
    """Return the key id of the unverified header."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise Rejected(f"the JWT cannot be read: {error}") from error
    if header.get("alg") not in ALGORITHMS:
        raise Rejected(
            f"the JWT is signed with {header.get('alg')!r}, and only asymmetric signatures are "
            "accepted"
        )
    return str(header.get("kid", ""))


class RoleRule(Struct, frozen=True, kw_only=True):
    """The claim that holds roles, and the role of each value."""

    claim: str
    meanings: dict[str, Role]

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """Return the highest role of a person, or `None`."""
        found: Any = claims
        for name in self.claim.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        values = found if isinstance(found, list) else [found]
        named = [value for value in values if isinstance(value, str) and value in self.meanings]
        return max((self.meanings[value] for value in named), key=ROLES.index, default=None)


def read_roles(settings: ConsoleSettings) -> RoleRule:
    """Parse the role settings; raises `InvalidSettings`."""
    meanings: dict[str, Role] = {role: role for role in ROLES}
    for entry in filter(None, (part.strip() for part in settings.oidc_roles.split(","))):
        value, _, word = entry.rpartition("=")
        try:
            meanings[value.strip()] = msgspec.convert(word.strip(), Role)
        except msgspec.ValidationError as error:
            raise InvalidSettings(
                f"HEADWAY_OIDC_ROLES: invalid entry {entry!r}; write "
                f"'sre=admin,developers=viewer', with the roles {', '.join(ROLES)}"
            ) from error
    return RoleRule(claim=settings.oidc_role_claim, meanings=meanings)


def check_oidc(settings: ConsoleSettings) -> None:
    """Raise `InvalidSettings` if the OIDC settings are incomplete."""
    if settings.oidc_issuer is None:
        return
    problems = []
    parts = urlsplit(settings.oidc_issuer)
    is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
    if parts.scheme != "https" and not is_local:
        problems.append(f"HEADWAY_OIDC_ISSUER: {settings.oidc_issuer!r} is not an https:// URL")
    if not (settings.oidc_audience or settings.oidc_client_id):
        problems.append("HEADWAY_OIDC_AUDIENCE is not set: set the audience that JWTs must have")
    if settings.oidc_client_id and not settings.console_url:
        problems.append(
            "HEADWAY_CONSOLE_URL is not set: the issuer redirects people to it after sign-in"
        )
    if problems:
        raise InvalidSettings("\n".join(problems))
