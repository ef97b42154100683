"""The session of a command: which Headway it asks, with which token, and how it prints answers."""

import functools
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from headway import Client
from headway_clock import utc_now
from headway_service_kit.process import run
from headway_service_kit.settings import lookup
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import find_running
from headway_cli.terminal import options, output
from headway_cli.terminal.times import has_offset, read_moment

Result = TypeVar("Result")
Item = TypeVar("Item")
Question = Callable[[Client], Awaitable[Result]]
Query = list[tuple[str, str]]

_PAGE = 500


class ConsoleAddress(Struct, frozen=True, kw_only=True):
    """The settings of a command that asks a console."""

    url: str
    token: str | None = None


class HasText(Protocol):
    """An answer that has a text for people."""

    @property
    def text(self) -> str:
        """The answer in one or more sentences."""
        ...


class Session(Struct, frozen=True, kw_only=True):
    """The options that every asking command has."""

    data: Path
    url: str | None
    as_json: bool = False

    def ask(self, question: Question[Result]) -> Result:
        """Connect a client, ask, and disconnect."""
        address = self.address()

        async def answer() -> Result:
            async with Client(address.url, token=address.token) as client:
                return await question(client)

        return run(answer())

    def read_list(
        self, path: str, query: Iterable[tuple[str, str]] = (), *, most: int = 0
    ) -> list[Any]:
        """Read a list of the API page by page: all of it, or the first `most` items."""
        address = self.address()

        async def read() -> list[Any]:
            # Not above: most commands use the client only.
            from headway.client.http_control import HttpControl  # noqa: PLC0415

            found: list[Any] = []
            cursor: Query = []
            async with HttpControl(address.url, token=address.token) as control:
                while True:
                    limit = min(_PAGE, most - len(found)) if most else _PAGE
                    body = await control.call(
                        "GET", path, query=[*query, ("limit", str(limit)), *cursor]
                    )
                    page = msgspec.json.decode(body)
                    found += page["items"]
                    if page["next"] is None or len(found) == most:
                        return found
                    cursor = [("cursor", page["next"])]

        return run(read())

    def address(self) -> ConsoleAddress:
        """Return the URL and token that were given, or those of the `up` of the data folder."""
        url = self.url or lookup(os.environ, "url")
        if url is not None:
            return settings.read(ConsoleAddress, {"url": url})
        running = find_running(self.data)
        return ConsoleAddress(url=running.url, token=running.token)

    def print(self, answer: object, lines: Callable[[], Iterable[str]]) -> None:
        """Print an answer as JSON, or as lines."""
        if self.as_json:
            output.print_json(answer)
        else:
            output.print_lines(lines())

    def print_text(self, answer: HasText) -> None:
        """Print an answer as JSON, or its text."""
        self.print(answer, lambda: answer.text.splitlines() or [""])

    def print_items(
        self,
        items: Sequence[Item],
        headings: Sequence[str],
        row: Callable[[Item], Sequence[object]],
        *,
        empty: str,
        most: int | None = None,
    ) -> None:
        """Print a list as JSON or as a table."""
        output.print_items(items, headings, row, empty=empty, as_json=self.as_json, most=most)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that asks a console; it gets them as `session`."""

    @functools.wraps(command)
    def called(
        *arguments: Any, data: Path, url: str | None, as_json: bool = False, **rest: Any
    ) -> Any:
        session = Session(data=data, url=url, as_json=as_json)
        return command(*arguments, session=session, **rest)

    return options.together(
        output.json_option,
        options.setting(
            "--url", "url", "URL of the console to ask, with the token of HEADWAY_TOKEN.",
            metavar="URL",
        ),
        options.data_option("Data folder of the 'headway up' to ask if no URL is given."),
        options.debug_option,
    )(called)  # fmt: skip


async def read_manifest_time(
    client: Client, manifest_id: str | None, text: str | None, *, past: bool
) -> datetime | None:
    """Read a time in the zone of a manifest; looks the zone up only if the time needs it."""
    if text is None:
        return None
    zone = "UTC"
    if manifest_id is not None and not has_offset(text):
        zone = (await client.manifest(manifest_id)).status.zone
    return read_moment(text, zone, now=utc_now(), past=past)
