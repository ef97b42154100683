"""How commands reach the services: which NATS, who asks, and how answers are printed."""

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from headway import Client
from headway_service_kit.process import run
from headway_service_kit.settings import given
from msgspec import Struct

from headway_cli import options, settings
from headway_cli.running import find_running

Result = TypeVar("Result")
Ask = Callable[[Client], Awaitable[Result]]


class AskSettings(Struct, frozen=True, kw_only=True):
    """What a command needs that only asks."""

    nats_url: str
    nats_creds: str | None = None


class Reached(Struct, frozen=True, kw_only=True):
    """What the options say about how to reach the services."""

    data: Path
    nats_url: str | None
    actor: str | None

    def ask(self, question: Ask[Result]) -> Result:
        """Connect, ask, and hang up."""
        given = self._settings()

        async def asked() -> Result:
            client = Client(given.nats_url, credentials=given.nats_creds, actor=self.actor)
            async with client:
                return await question(client)

        return run(asked())

    def _settings(self) -> AskSettings:
        url = self.nats_url or given(os.environ, "nats_url") or find_running(self.data)
        return settings.read(AskSettings, {"nats_url": url})


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that asks; it gets them as `reached`."""

    # With the attributes of the command: options below this one have left themselves there.
    @functools.wraps(command)
    def called(
        *arguments: Any, data: Path, nats_url: str | None, actor: str | None, **rest: Any
    ) -> Any:
        reached = Reached(data=data, nats_url=nats_url, actor=actor)
        return command(*arguments, reached=reached, **rest)

    complete: Callable[..., Any] = called
    for option in (options.debug_option, _actor_option, _data_option, options.nats_option):
        complete = option(complete)
    return complete


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

_data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headway"),
    show_default=True,
    help="The data folder of the 'headway up' to ask, if no NATS is named.",
)
_actor_option = click.option(
    "--actor", help="Who the audit says has done it; without it your login name."
)


def print_json(answer: object) -> None:
    """One JSON document, indented for people."""
    click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def print_lines(lines: list[str]) -> None:
    """Lines for people."""
    for line in lines:
        click.echo(line)
