"""How commands ask: which Headway, with whose token, and how answers are printed."""

import functools
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from headway import Client
from headway_service_kit.process import run
from headway_service_kit.settings import given
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import find_running
from headway_cli.terminal import options
from headway_cli.terminal.tables import printable

Result = TypeVar("Result")
Ask = Callable[[Client], Awaitable[Result]]


_PAGE = 500


class AskSettings(Struct, frozen=True, kw_only=True):
    """What a command needs that only asks."""

    url: str
    token: str | None = None


class Reached(Struct, frozen=True, kw_only=True):
    """What the options say about which Headway to ask."""

    data: Path
    url: str | None

    def ask(self, question: Ask[Result]) -> Result:
        """Ask, and hang up."""
        given = self.settings()

        async def asked() -> Result:
            async with Client(given.url, token=given.token) as client:
                return await question(client)

        return run(asked())

    def listed(
        self, path: str, query: Iterable[tuple[str, str]] = (), *, most: int | None = None
    ) -> list[Any]:
        """Read a list of the API page after page: all of it, or the first `most` items."""
        given = self.settings()

        async def read() -> list[Any]:
            # Not above: most commands ask in the client's words.
            from headway.client.http_control import HttpControl  # noqa: PLC0415

            found: list[Any] = []
            cursor: list[tuple[str, str]] = []
            async with HttpControl(given.url, token=given.token) as control:
                while True:
                    left = _PAGE if most is None else min(_PAGE, most - len(found))
                    asked = [*query, ("limit", str(left)), *cursor]
                    page = msgspec.json.decode(await control.call("GET", path, query=asked))
                    found += page["items"]
                    if page["next"] is None or len(found) == most:
                        return found
                    cursor = [("cursor", page["next"])]

        return run(read())

    def settings(self) -> AskSettings:
        """The URL and the token: those given, or those of an `up` that runs on the data folder."""
        url = self.url or given(os.environ, "url")
        if url is not None:
            return settings.read(AskSettings, {"url": url})
        found = find_running(self.data)
        return AskSettings(url=found.url, token=found.token)


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that asks; it gets them as `reached`."""

    # With the attributes of the command: options below this one have left themselves there.
    @functools.wraps(command)
    def called(*arguments: Any, data: Path, url: str | None, **rest: Any) -> Any:
        return command(*arguments, reached=Reached(data=data, url=url), **rest)

    complete: Callable[..., Any] = called
    for option in (options.debug_option, options.running_data_option, options.url_option):
        complete = option(complete)
    return complete


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def print_json(answer: object) -> None:
    """One JSON document, indented for people."""
    click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def print_lines(lines: list[str]) -> None:
    """Lines for people."""
    for line in lines:
        click.echo(printable(line.expandtabs()))
