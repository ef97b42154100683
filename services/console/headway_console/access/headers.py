"""Security headers of every response, errors included."""

from litestar.datastructures import MutableScopeHeaders
from litestar.types import BeforeMessageSendHookHandler, Message, Scope

# Only files of this console, nothing inline, and no framing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not stricter: without a referrer browsers also hide the origin of a form.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "cache-control": "no-store",
}


def security_headers(*, secure: bool) -> BeforeMessageSendHookHandler:
    """Return a hook that adds the headers which a response does not set itself."""
    https = {"strict-transport-security": "max-age=31536000"} if secure else {}

    async def add(message: Message, _: Scope) -> None:
        if message["type"] == "http.response.start":
            headers = MutableScopeHeaders.from_message(message)
            for name, value in (_HEADERS | https).items():
                headers.setdefault(name, value)

    return add
