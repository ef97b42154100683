"""An OIDC issuer for tests: keys of its own, and the endpoints that a console asks."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "headway-console", "client-secret"


class TestIssuer:
    """Signs what it is asked to, and counts how often its keys are fetched."""

    __test__ = False

    def __init__(self) -> None:
        self.url = ""
        self.keys_fetched = 0
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {"sub": "17", "email": "eve@example.org", "roles": ["sre"]}
        self.keys = {"first": _new_key()}

    def token(self, *, key: str = "first", **claims: Any) -> str:
        """A JWT for the console, as good as it can be unless the claims say otherwise."""
        now = datetime.now(UTC)
        full = {
            "iss": self.url,
            "aud": CLIENT,
            "iat": now,
            "exp": now + timedelta(minutes=5),
            **self.claims,
            **claims,
        }
        stated = {name: value for name, value in full.items() if value is not None}
        return jwt.encode(stated, self.keys[key], algorithm="RS256", headers={"kid": key})

    def public_pem(self) -> bytes:
        """The public key, which anybody can have."""
        return (
            self.keys["first"]
            .public_key()
            .public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def grant(self, request: dict[str, str]) -> str:
        """Sign a person in and return the address that the browser is sent back to."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = request
        back = {"code": code, "state": request["state"], "iss": self.url}
        return f"{request['redirect_uri']}?{urlencode(back)}"

    def answer(self, method: str, path: str, headers: dict[str, str], body: str) -> tuple[int, Any]:
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        if path == "/keys":
            self.keys_fetched += 1
            return 200, {"keys": [_public(name, key) for name, key in self.keys.items()]}
        if (method, path) == ("POST", "/token"):
            return self._exchange(headers, {k: v[0] for k, v in parse_qs(body).items()})
        return 404, {}

    def _exchange(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, Any]:
        request = self.codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        good = (
            request is not None
            and headers.get("authorization") == f"Basic {basic}"
            and request["code_challenge"] == challenge
            and request["redirect_uri"] == form["redirect_uri"]
        )
        if not good:
            return 400, {"error": "invalid_grant"}
        return 200, {"id_token": self.token(nonce=request["nonce"]), "token_type": "Bearer"}


@asynccontextmanager
async def run_issuer() -> AsyncIterator[TestIssuer]:
    """An issuer on a free port of this machine."""
    issuer = TestIssuer()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = first.split(" ")
        status, answer = issuer.answer(method, urlsplit(target).path, headers, body.decode())
        data = json.dumps(answer).encode()
        writer.write(
            b"HTTP/1.1 %d .\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%s" % (status, len(data), data)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield issuer
    finally:
        server.close()


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _public(name: str, key: rsa.RSAPrivateKey) -> dict[str, Any]:
    made = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**made, "kid": name, "use": "sig", "alg": "RS256"}
