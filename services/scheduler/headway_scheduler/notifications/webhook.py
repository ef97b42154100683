"""The webhook: one URL, signed requests with a timeout, and no redirects.

Requests are signed by the Standard Webhooks specification: the header `webhook-signature` holds an
HMAC-SHA256 of `webhook-id`, `webhook-timestamp` and the body for each secret.
"""

import asyncio
import base64
import binascii
import functools
import hashlib
import hmac
import ssl
from collections.abc import Sequence

import httpx
from headway_clock import utc_now
from headway_contract import Event, encode
from headway_service_kit.settings import InvalidSettings
from msgspec import Struct

from headway_scheduler.settings import SchedulerSettings

_PREFIX = "whsec_"
_SHORTEST_SECRET, _LONGEST_SECRET = 24, 64


class Webhook(Struct, frozen=True, kw_only=True):
    """The URL of notifications, and the secrets that sign them."""

    url: str
    secrets: tuple[bytes, ...]
    timeout: float

    async def send(self, event: Event) -> str | None:
        """Post one event once; returns why the receiver did not accept it, or `None`.

        Proxies of the environment are not used: no request goes to anything but the URL.
        """
        body = encode(event)
        headers = {
            "content-type": "application/cloudevents+json; charset=utf-8",
            "user-agent": "headway",
            **signed_headers(self.secrets, event.id, int(utc_now().timestamp()), body),
        }
        try:
            async with (
                asyncio.timeout(self.timeout),
                httpx.AsyncClient(
                    verify=_trusted(), trust_env=False, follow_redirects=False, timeout=self.timeout
                ) as client,
                # Only the status is read, so a long answer costs nothing.
                client.stream("POST", self.url, content=body, headers=headers) as reply,
            ):
                return _refusal(reply.status_code)
        except TimeoutError:
            return f"no answer within {self.timeout:g} s"
        except (httpx.HTTPError, OSError) as error:
            return f"{type(error).__name__}: {error}"[:500]


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return the trusted authorities, read once: those of `SSL_CERT_FILE`, or the default ones."""
    return httpx.create_ssl_context()


def _refusal(status: int) -> str | None:
    if httpx.codes.is_success(status):
        return None
    if httpx.codes.is_redirect(status):
        return f"status {status}: redirects are not followed, set HEADWAY_WEBHOOK_URL to the target"
    return f"status {status}"


def signed_headers(
    secrets: Sequence[bytes], identity: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the headers that prove the origin and the age of a request."""
    content = b".".join((identity.encode(), str(timestamp).encode(), body))
    signatures = [
        base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
        for secret in secrets
    ]
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def webhook_of(settings: SchedulerSettings) -> Webhook | None:
    """Return the webhook of the settings, or `None`."""
    if settings.webhook_url is None:
        return None
    return Webhook(
        url=settings.webhook_url,
        secrets=read_secrets(settings.webhook_secret or ""),
        timeout=settings.webhook_timeout_seconds,
    )


def read_secrets(text: str) -> tuple[bytes, ...]:
    """Return the secrets of a setting, separated by spaces; raises for a missing or weak one."""
    found = tuple(_read_secret(word) for word in text.split())
    if not found:
        raise InvalidSettings(
            "HEADWAY_WEBHOOK_SECRET is not set, but notifications are signed: make one with "
            "'headway notify secret', and name its file in HEADWAY_WEBHOOK_SECRET_FILE"
        )
    return found


def _read_secret(word: str) -> bytes:
    try:
        secret = base64.b64decode(word.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        secret = b""
    if not word.startswith(_PREFIX) or not _SHORTEST_SECRET <= len(secret) <= _LONGEST_SECRET:
        raise InvalidSettings(
            f"HEADWAY_WEBHOOK_SECRET: expected {_PREFIX} and {_SHORTEST_SECRET} to "
            f"{_LONGEST_SECRET} bytes in base64: make one with 'headway notify secret'"
        )
    return secret
