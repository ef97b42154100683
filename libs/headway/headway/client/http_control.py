"""Requests to the HTTP API of a console.

The path of a request names fields of its struct in braces. The other fields that are not at their
default become the query of a DELETE, and the body of any other method.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from headway_contract.http import API
from headway_errors import RequestFailed, TimedOut, Unavailable, failure, kind_of_status
from msgspec import NODEFAULT, Struct, structs

Answer = TypeVar("Answer", bound=Struct)
Item = TypeVar("Item")

# Most requests take milliseconds; definitions of thousands of manifests do not.
USUAL_SECONDS = 5.0
PATIENT_SECONDS = 30.0

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_NATS_SCHEMES = ("nats://", "tls://", "ws://", "wss://")
# The maximum number of items in a page of a list.
_PAGE = 500
# The console limits the time of a request; a proxy may need some time beside that.
_TIMEOUT = httpx.Timeout(PATIENT_SECONDS + 5.0, connect=2 * USUAL_SECONDS)
# The console sends a comment at least this often while nothing happens.
_STREAM_TIMEOUT = httpx.Timeout(USUAL_SECONDS, read=60.0)
# The service itself failed; any other 502 is a proxy that did not reach the console.
_SERVICE_FAILED = "urn:headway:problem:service-failed"


class HttpControl:
    """One connection to the HTTP API. Close it after use."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        _check_url(url)
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.AsyncClient(
                base_url=self.url, headers=headers, transport=transport, timeout=_TIMEOUT
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise RequestFailed(f"{url!r} is not a usable URL: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def ask(self, method: str, path: str, request: Struct, answer: type[Answer]) -> Answer:
        """Send a request to a path below `/api/v1` and return its answer."""
        sent = {
            field.encode_name: getattr(request, field.name)
            for field in structs.fields(request)
            # The server takes the actor from the token.
            if field.name != "actor" and getattr(request, field.name) != _default(field)
        }
        for name in _PLACEHOLDER.findall(path):
            sent.pop(name, None)
            path = path.replace(f"{{{name}}}", segment(getattr(request, name)))
        if method == "DELETE":
            found = await self.call(method, API + path, query=_spelled(sent))
        else:
            found = await self.call(method, API + path, body=msgspec.json.encode(sent))
        return _read(path, found, answer)

    async def show(
        self, path: str, answer: type[Answer], query: Mapping[str, Any] | None = None
    ) -> Answer:
        """Return the answer to a GET of a path below `/api/v1`."""
        return _read(path, await self.call("GET", API + path, query=_spelled(query or {})), answer)

    async def list(
        self, path: str, query: Mapping[str, Any], item: type[Item], *, most: int | None = None
    ) -> list[Item]:
        """Read a list page after page: all of it, or the first `most` items."""
        found: list[Item] = []
        page = _Page(next="")
        while page.next is not None and (most is None or len(found) < most):
            limit = _PAGE if most is None else min(_PAGE, most - len(found))
            bounded = {**query, "limit": limit, "cursor": page.next or None}
            page = await self.show(path, _Page, bounded)
            found += _read(path, page.items, list[item])  # type: ignore[valid-type]
        return found

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> bytes:
        """Return the body of a successful answer, or raise `RequestFailed`."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            reply = await self._client.request(
                method, path, params=list(query), content=body, headers=headers
            )
        except httpx.HTTPError as error:
            raise self._not_answered(error) from error
        if not reply.is_success:
            raise _failure(reply.status_code, reply.content, self.url)
        return reply.content

    async def follow(
        self, path: str, query: Iterable[tuple[str, str]], *, after: str = ""
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Yield server-sent events with their ids, until the server ends the stream."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
        try:
            async with self._client.stream(
                "GET", path, params=list(query), headers=headers, timeout=_STREAM_TIMEOUT
            ) as reply:
                if not reply.is_success:
                    raise _failure(reply.status_code, await reply.aread(), self.url)
                async for event in _events(reply.aiter_lines()):
                    yield event
        except httpx.HTTPError as error:
            raise self._not_answered(error) from error

    def _not_answered(self, error: httpx.HTTPError) -> Unavailable:
        reason = str(error) or type(error).__name__
        kind = TimedOut if isinstance(error, httpx.ReadTimeout) else Unavailable
        return kind(
            f"Headway at {self.url} does not answer ({reason}): is its console running? "
            "Check HEADWAY_URL"
        )


def segment(value: object) -> str:
    """Return a value as one segment of a path."""
    return quote(str(value), safe="")


def _check_url(url: str) -> None:
    """Raise `RequestFailed` for a URL that is not one of a console."""
    if url.startswith(("http://", "https://")):
        return
    kind = "the URL of NATS" if url.startswith(_NATS_SCHEMES) else "not a URL"
    raise RequestFailed(
        f"{url!r} is {kind}: give the URL of the console, as in "
        'Client("http://127.0.0.1:8080", token=...)'
    )


class _Page(Struct, frozen=True, kw_only=True):
    """A page of a list."""

    items: msgspec.Raw = msgspec.Raw(b"[]")
    next: str | None = None


def _read(path: str, body: bytes | msgspec.Raw, kind: type[Item]) -> Item:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestFailed(f"{API}{path}: the answer cannot be read: {error}") from error


def _default(field: structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def _spelled(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return parameters of a query; `None` is left out, a list is repeated."""
    spelled: list[tuple[str, str]] = []
    for name, value in fields.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                plain = msgspec.to_builtins(item)
                text = str(plain).lower() if isinstance(plain, bool) else str(plain)
                spelled.append((name, text))
    return spelled


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, bytes]]:
    identity, data = "", ""
    async for line in lines:
        name, _, value = line.partition(":")
        if not line:
            if data:
                yield identity, data.encode()
            data = ""
        elif name == "id":
            identity = value.removeprefix(" ")
        elif name == "data":
            data += value.removeprefix(" ")


def _failure(status: int, body: bytes, url: str) -> RequestFailed:
    """Return the failure that the server describes."""
    problem: dict[str, Any] = {}
    with suppress(msgspec.DecodeError):
        problem = msgspec.json.decode(body, type=dict[str, Any])
    text = str(problem.get("detail") or problem.get("title") or f"status {status}")
    if status == 401:
        return RequestFailed(f"Headway at {url} does not know you: {text}")
    if problem.get("type") == _SERVICE_FAILED:
        return RequestFailed(text)
    if status in (429, 502):
        return Unavailable(text)
    return failure(kind_of_status(status), text)
