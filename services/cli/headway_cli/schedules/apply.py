"""`headway plan` and `headway apply`: apply definitions to a running scheduler."""

import os
from collections.abc import Iterator
from typing import Annotated

import click
from headway.define.definitions import Definitions
from headway_contract.definitions import ApplyAnswer, PrunePolicy
from msgspec import Meta, Struct
from msgspec.structs import replace

from headway_cli.schedules.fire_changes import fire_lines
from headway_cli.serve import settings
from headway_cli.serve.find_app import load_app
from headway_cli.serve.services import prune_choice
from headway_cli.serve.session import Session, asking
from headway_cli.terminal import options
from headway_cli.terminal.interaction import confirm, progressing, yes_option
from headway_cli.terminal.output import counted, listed


class _Deployment(Struct, frozen=True, kw_only=True):
    """The generation of the deployment that declares; by default the application's own."""

    generation: Annotated[int, Meta(ge=0)] | None = None


_definition_options = options.together(
    click.argument("app", required=False, envvar="HEADWAY_APP"),
    click.option("-f", "--file", "file", metavar="FILE", help="A YAML file with the definitions."),
    click.option(
        "--prune",
        type=prune_choice,
        help="Handling of manifests that are no longer declared; by default the scheduler's.",
    ),
    click.option(
        "--take-over",
        is_flag=True,
        help="Also if code declares the application; the code then declares nothing any more.",
    ),
)


@click.command()
@_definition_options
@click.option(
    "--days",
    type=click.IntRange(0, 3660),
    default=7,
    show_default=True,
    help="How far ahead fire times are compared.",
)
@asking
def plan(
    session: Session,
    app: str | None,
    file: str | None,
    days: int,
    prune: PrunePolicy | None,
    take_over: bool,
) -> None:
    """Show what 'apply' would change, and which fire times.

    APP is your file.py, module or module:name, or a YAML file.
    """
    definitions = _definitions(app, file)
    size = counted(len(definitions.manifests), "manifest")
    with progressing(f"planning {size}", quiet=session.as_json):
        answer = session.ask(
            lambda client: client.plan(definitions, prune=prune, days=days, take_over=take_over)
        )
    title = f"plan for {answer.owner}: nothing has been changed"
    session.print(answer, lambda: [title, *_changes(answer), *fire_lines(answer, days)])
    if not session.as_json:
        _warn(answer)


@click.command()
@_definition_options
@yes_option
@asking
def apply(
    session: Session,
    app: str | None,
    file: str | None,
    prune: PrunePolicy | None,
    take_over: bool,
    yes: bool,
) -> None:
    """Apply definitions to a running scheduler, all or none.

    APP is your file.py, module or module:name, or a YAML file. Asks for confirmation before it
    deletes manifests that the definitions no longer contain. An application that code declares at
    every start is refused, unless an admin takes it over.
    """
    definitions = _definitions(app, file)
    confirm(lambda: _describe_deletion(session, definitions, prune, take_over=take_over), yes=yes)
    size = counted(len(definitions.manifests), "manifest")
    with progressing(f"applying {size}", quiet=session.as_json):
        answer = session.ask(
            lambda client: client.apply(definitions, prune=prune, take_over=take_over)
        )
    stale = f"nothing of {answer.owner} was applied"
    title = stale if answer.stale else f"applied {answer.owner}"
    session.print(answer, lambda: [title, *_changes(answer)])
    if not session.as_json:
        _warn(answer)


def _describe_deletion(
    session: Session, definitions: Definitions, prune: PrunePolicy | None, *, take_over: bool
) -> str | None:
    """Describe the deletions of an apply; `None` if there are none or it will be refused."""
    planned = session.ask(
        lambda client: client.plan(definitions, prune=prune, days=0, take_over=take_over)
    )
    # Whatever the policy: what has left a batch is deleted under each of them.
    if not planned.pruned or planned.refused:
        return None
    number = counted(len(planned.pruned), "manifest")
    return f"apply it and delete {number} with all runs and dead letters ({listed(planned.pruned)})"


def _definitions(app: str | None, file: str | None) -> Definitions:
    if file is not None and app is not None and app != os.environ.get("HEADWAY_APP"):
        raise click.UsageError(f"give either an app ({app}) or a file ({file}), not both")
    target = file or app
    if target is None:
        raise click.UsageError("nothing to apply: give an APP, or a YAML file with -f")
    definitions = load_app(target).definitions(settings.read_defaults())
    # As at a start of the scheduler, so that the plan compares the same generation.
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
