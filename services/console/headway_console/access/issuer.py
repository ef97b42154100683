"""An OIDC issuer: where it is found, its keys, and what its JWTs say.

Only signatures with a public key are taken: with a shared secret, or with none, anybody who knows
the public key could sign. The keys are fetched once; a token that names an unknown one has them
fetched again, but not more often than a rolled key needs, since anybody can make up names.
"""

import asyncio
import base64
import hashlib
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import msgspec
from headway_clock import monotonic
from headway_contract.routes import ROLES, Role
from headway_service_kit.settings import InvalidSettings
from msgspec import Struct

from headway_console.access.tokens import Rejected
from headway_console.settings import ConsoleSettings, is_loopback

logger = logging.getLogger(__name__)

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
    """The issuer does not answer, or says something that nobody can use."""


class Discovered(Struct, frozen=True, kw_only=True):
    """What we need of an issuer's discovery document."""

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


class KeySet(Struct, frozen=True, kw_only=True):
    """Its public keys."""

    keys: list[dict[str, Any]] = []


class Issuer:
    """One issuer, asked when needed."""

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
        """Where its endpoints are; asked for once."""
        if self._discovered is None:
            where = f"{self.url.rstrip('/')}/.well-known/openid-configuration"
            found = await self._get(where, Discovered)
            if found.issuer.rstrip("/") != self.url.rstrip("/"):
                raise IssuerUnavailable(
                    f"{where} speaks for {found.issuer!r} and not for {self.url!r}: write "
                    "HEADWAY_OIDC_ISSUER exactly as the issuer calls itself"
                )
            self._discovered = found
        return self._discovered

    async def claims(self, token: str, *, audience: str) -> dict[str, Any]:
        """What a JWT says; raises `Rejected` if it is not the issuer's, for us, and now."""
        key_id = _key_id(token)
        key = await self._key(key_id)
        if key is None:
            raise Rejected("the JWT is signed with a key that its issuer does not have")
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
        """The id token that a code stands for."""
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
        async with self._fetching:
            lasts = _KEYS_LAST_SECONDS if key_id in self._keys else _FETCH_AGAIN_SECONDS
            if self._tried_at is None or monotonic() - self._tried_at > lasts:
                await self._try_to_fetch(key_id)
        return self._keys.get(key_id)

    async def _try_to_fetch(self, key_id: str) -> None:
        """Fetch the keys; while the issuer does not answer, one that we have goes on counting."""
        self._tried_at = monotonic()
        try:
            await self._fetch()
        except IssuerUnavailable as error:
            if key_id not in self._keys:
                self._tried_at = None if not self._keys else self._tried_at
                raise
            logger.warning("the keys of the OIDC issuer could not be fetched again: %s", error)

    async def _fetch(self) -> None:
        where = (await self.discover()).jwks_uri
        found = await self._get(where, KeySet)
        keys: dict[str, jwt.PyJWK] = {}
        for one in found.keys:
            if one.get("use", "sig") != "sig" or one.get("kty") == "oct":
                continue
            try:
                keys[str(one.get("kid", ""))] = jwt.PyJWK.from_dict(one)
            except (jwt.PyJWTError, ValueError) as error:
                logger.info("%s: a key that cannot be used: %s", where, error)
        self._keys = keys

    async def _get(self, url: str, kind: type[Any]) -> Any:
        try:
            reply = await self._client.get(url)
            reply.raise_for_status()
            return msgspec.json.decode(reply.content, type=kind)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
            raise IssuerUnavailable(f"{url}: {error or type(error).__name__}") from error


def redirect_url(settings: ConsoleSettings) -> str:
    """Where the issuer sends people back to."""
    return f"{(settings.console_url or '').rstrip('/')}/sign-in/oidc/back"


def challenge_of(verifier: str) -> str:
    """What the issuer is shown of a secret that only we can show it later (PKCE, S256)."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def looks_like_jwt(token: str) -> bool:
    """Whether it is worth asking an issuer about a token."""
    return token.count(".") == 2


def _key_id(token: str) -> str:
    """The name of the key in the header, which nobody has signed yet."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError as error:
        raise Rejected(f"the JWT cannot be read: {error}") from error
    if header.get("alg") not in ALGORITHMS:
        raise Rejected(
            f"the JWT is signed by {header.get('alg')!r}, and only signatures with a public key "
            "are taken"
        )
    return str(header.get("kid", ""))


class RoleRule(Struct, frozen=True, kw_only=True):
    """Which claim holds somebody's roles, and what its values mean."""

    claim: str
    meanings: dict[str, Role]

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """The highest role that somebody has, if any."""
        found: Any = claims
        for name in self.claim.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        values = found if isinstance(found, list) else [found]
        held = [
            self.meanings[one] for one in values if isinstance(one, str) and one in self.meanings
        ]
        return max(held, key=ROLES.index, default=None)


def read_roles(settings: ConsoleSettings) -> RoleRule:
    """The rule that the settings state; raises `InvalidSettings` if it is none."""
    meanings: dict[str, Role] = {role: role for role in ROLES}
    for entry in filter(None, (one.strip() for one in settings.oidc_roles.split(","))):
        value, _, word = entry.rpartition("=")
        try:
            meanings[value.strip()] = msgspec.convert(word.strip(), Role)
        except msgspec.ValidationError as error:
            raise InvalidSettings(
                f"HEADWAY_OIDC_ROLES: {entry!r} is no value=role: write as in "
                f"'sre=admin,developers=viewer', with the roles {', '.join(ROLES)}"
            ) from error
    return RoleRule(claim=settings.oidc_role_claim, meanings=meanings)


def check_oidc(settings: ConsoleSettings) -> None:
    """Raise `InvalidSettings` if the settings of OIDC do not fit together."""
    problems = []
    issuer = settings.oidc_issuer
    if issuer is None:
        return
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        problems.append(f"HEADWAY_OIDC_ISSUER: {issuer!r} is no https:// URL")
    if not (settings.oidc_audience or settings.oidc_client_id):
        problems.append(
            "HEADWAY_OIDC_AUDIENCE is not set: say for whom a JWT must be meant to be taken"
        )
    if settings.oidc_client_id and not settings.console_url:
        problems.append(
            "HEADWAY_CONSOLE_URL is not set: the issuer has to send people back to it after "
            "they have signed in"
        )
    if problems:
        raise InvalidSettings("\n".join(problems))
