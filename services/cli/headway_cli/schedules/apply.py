"""`plan` and `apply`: bring definitions to a running scheduler, or see what that would do."""

import os
from collections.abc import Iterator
from typing import Annotated

import click
from headway import Client
from headway.define.definitions import Definitions
from headway_contract.scheduling import ApplyAnswer, PrunePolicy
from msgspec import Meta, Struct
from msgspec.structs import replace

from headway_cli.schedules.fire_changes import fire_lines
from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.terminal.confirm import confirm, listed, yes_option
from headway_cli.terminal.connect import Reached, asking, json_option, print_json, print_lines
from headway_cli.terminal.options import Decorator
from headway_cli.terminal.progress import progressing
from headway_cli.up.summary import counted


class _Deployment(Struct, frozen=True, kw_only=True):
    """Which deployment declares; the application says so where this does not."""

    generation: Annotated[int, Meta(ge=0)] | None = None


_app_argument = click.argument("app", required=False, envvar="HEADWAY_APP")
_file_option = click.option(
    "-f", "--file", "file", metavar="FILE", help="A YAML file with the definitions."
)
_prune_option: Decorator = click.option(
    "--prune",
    type=click.Choice(["delete", "disable", "keep"]),
    help="What becomes of manifests that are no longer declared; without it as the scheduler "
    "is set.",
)
_take_over_option: Decorator = click.option(
    "--take-over",
    is_flag=True,
    help="Also if code declares the application, which then declares nothing any more.",
)


@click.command()
@_app_argument
@_file_option
@click.option(
    "--days",
    type=click.IntRange(0, 3660),
    default=7,
    show_default=True,
    help="How far ahead fire times are compared.",
)
@_prune_option
@_take_over_option
@json_option
@asking
def plan(
    reached: Reached,
    app: str | None,
    file: str | None,
    days: int,
    prune: PrunePolicy | None,
    take_over: bool,
    as_json: bool,
) -> None:
    """Show what 'apply' would change, and which fire times.

    APP is your file.py, module or module:name, or a YAML file.
    """
    definitions = _definitions(app, file)

    async def ask(client: Client) -> ApplyAnswer:
        return await client.plan(definitions, prune=prune, days=days, take_over=take_over)

    with progressing(f"planning {_size(definitions)}", quiet=as_json):
        answer = reached.ask(ask)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"plan for {answer.owner}: nothing has been changed")
        print_lines([*_changes(answer), *fire_lines(answer, days)])
        _warn(answer)


@click.command()
@_app_argument
@_file_option
@_prune_option
@_take_over_option
@yes_option
@json_option
@asking
def apply(
    reached: Reached,
    app: str | None,
    file: str | None,
    prune: PrunePolicy | None,
    take_over: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Bring definitions to a running scheduler, all or none.

    APP is your file.py, module or module:name, or a YAML file. It asks before manifests are
    deleted that the definitions no longer name. An application that its code declares at every
    start is refused, unless an admin takes it over.
    """
    definitions = _definitions(app, file)
    confirm(lambda: _lost(reached, definitions, prune, take_over=take_over), yes=yes)

    async def ask(client: Client) -> ApplyAnswer:
        return await client.apply(definitions, prune=prune, take_over=take_over)

    with progressing(f"applying {_size(definitions)}", quiet=as_json):
        answer = reached.ask(ask)
    if as_json:
        print_json(answer)
    else:
        stale = f"nothing of {answer.owner} was applied"
        click.echo(stale if answer.stale else f"applied {answer.owner}")
        print_lines(list(_changes(answer)))
        _warn(answer)


def _lost(
    reached: Reached, definitions: Definitions, prune: PrunePolicy | None, *, take_over: bool
) -> str | None:
    """Which manifests would be gone; none if none would, or if it will be refused anyhow."""

    async def ask(client: Client) -> ApplyAnswer:
        return await client.plan(definitions, prune=prune, days=0, take_over=take_over)

    planned = reached.ask(ask)
    # Whatever the policy: what has left a batch is deleted under each of them.
    gone = planned.pruned
    if not gone or planned.refused:
        return None
    number = counted(len(gone), "manifest")
    return f"apply it and delete {number} with all runs and dead letters ({listed(gone)})"


def _size(definitions: Definitions) -> str:
    return counted(len(definitions.manifests), "manifest")


def _definitions(app: str | None, file: str | None) -> Definitions:
    if file is not None and app is not None and app != os.environ.get("HEADWAY_APP"):
        raise click.UsageError(f"give either an app ({app}) or a file ({file}), not both")
    target = file or app
    if target is None:
        raise click.UsageError("nothing to apply: give an APP, or a YAML file with -f")
    definitions = load_app(target).definitions(settings.read_defaults())
    # As at a start of the scheduler, or what a deployment has declared could not be planned.
    generation = settings.read(_Deployment, {}).generation
    return definitions if generation is None else replace(definitions, generation=generation)


def _changes(answer: ApplyAnswer) -> Iterator[str]:
    if answer.stale:
        return
    yield from (f"  + {name}  new" for name in answer.created)
    yield from (f"  ~ {name}  changed" for name in answer.changed)
    yield from (f"  - {name}  deleted" for name in answer.pruned)
    yield from (f"  - {name}  disabled" for name in answer.disabled)
    yield f"  {counted(answer.unchanged, 'manifest')} unchanged"


def _warn(answer: ApplyAnswer) -> None:
    if answer.refused:
        click.echo(f"headway: apply would be refused: {answer.refused}", err=True)
    for warning in answer.warnings:
        click.echo(f"headway: {warning}", err=True)
