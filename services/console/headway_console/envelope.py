"""Host check and security headers around the whole application, errors included."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from msgspec import Struct

from headway_console.problems import MEDIA_TYPE, Problem

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

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
# No file or page has such a path, and the file system raises on a NUL.
_UNPRINTABLE = Problem(
    type="urn:headway:problem:not-there",
    title="Page not found",
    status=404,
    detail="the path contains control characters",
)


class Envelope(Struct, frozen=True, kw_only=True):
    """The wrapped application; no hosts means any host."""

    application: Any
    hosts: frozenset[str]
    secure: bool

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._with_headers(message.get("headers", []))
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if self.hosts and host not in self.hosts:
            # Against DNS rebinding.
            problem = Problem(
                type="urn:headway:problem:host",
                title="Unknown host name",
                status=421,
                detail=f"use {' or '.join(sorted(self.hosts))}, or set HEADWAY_CONSOLE_URL",
            )
            await _refuse(sending, problem)
        elif not scope["path"].isprintable():
            await _refuse(sending, _UNPRINTABLE)
        else:
            await self.application(scope, receive, sending)

    def _with_headers(self, given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        names = {name.lower() for name, _ in given}
        wanted = dict(_HEADERS)
        if self.secure:
            wanted["strict-transport-security"] = "max-age=31536000"
        added = [(name.encode(), text.encode()) for name, text in wanted.items()]
        return [*given, *(header for header in added if header[0] not in names)]


async def _refuse(send: Send, problem: Problem) -> None:
    body = msgspec.json.encode(problem)
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
