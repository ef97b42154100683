"""Asking services by way of the HTTP API, which the console answers.

The same questions as over NATS, by the table of routes that the console's API is made of. Who
asks is who the token belongs to.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

import httpx
import msgspec
from headway_contract import http
from headway_errors import RequestFailed, TimedOut, Unavailable, failure, kind_of_status
from msgspec import Struct

from headway.client.control import USUAL_SECONDS, Answer

# What a proxy between us may take, beside the time that a service has.
_SLACK_SECONDS = 5.0
# The server says something at least this often while nothing happens.
_SILENCE_SECONDS = 60.0
# The service itself failed; any other 502 is a proxy that did not reach us.
_SERVICE_FAILED = "urn:headway:problem:service-failed"


class HttpControl:
    """One connection to the HTTP API. Close it after use."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.AsyncClient(base_url=self.url, headers=headers)
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise RequestFailed(f"{url!r} cannot be asked: {error}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def ask(
        self,
        subject: str,
        question: Struct,
        answer: type[Answer],
        *,
        timeout: float = USUAL_SECONDS,
    ) -> Answer:
        """The answer to a question; raises `RequestFailed` if there is none."""
        route = http.route_for(subject, question)
        sent = http.write(route, question)
        found = await self.call(
            sent.method, sent.path, query=sent.query, body=sent.body, timeout=timeout
        )
        try:
            plain = msgspec.json.decode(found)
            return msgspec.convert(http.answer_of(route, plain) if route.items else plain, answer)
        except (msgspec.DecodeError, http.InvalidRequest, KeyError, AttributeError) as error:
            raise RequestFailed(f"{sent.path}: the answer cannot be read: {error}") from error

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        timeout: float = USUAL_SECONDS,
    ) -> bytes:
        """The body of an answer; raises `RequestFailed` if it is none that was wished for."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            reply = await self._client.request(
                method,
                path,
                params=list(query),
                content=body,
                headers=headers,
                timeout=timeout + _SLACK_SECONDS,
            )
        except httpx.HTTPError as error:
            raise self._not_answered(error) from error
        if not reply.is_success:
            raise _failure(reply.status_code, reply.content, self.url)
        return reply.content

    async def follow(
        self, path: str, query: Iterable[tuple[str, str]], *, after: str = ""
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Server-sent events with their ids, until the server ends the stream."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
        timeout = httpx.Timeout(USUAL_SECONDS, read=_SILENCE_SECONDS)
        try:
            async with self._client.stream(
                "GET", path, params=list(query), headers=headers, timeout=timeout
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
    """What the server says is wrong, as the kind of failure that it is."""
    problem = _problem(body)
    text = str(problem.get("detail") or problem.get("title") or f"status {status}")
    if status == 401:
        return RequestFailed(f"Headway at {url} does not know you: {text}")
    if problem.get("type") == _SERVICE_FAILED:
        return RequestFailed(text)
    if status in (429, 502):
        return Unavailable(text)
    return failure(kind_of_status(status), text)


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
