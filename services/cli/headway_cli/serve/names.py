"""Names in arguments and options, and their completion in a shell."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete
from headway_service_kit.process import run

from headway_cli.terminal import options

VARIABLE = "_HEADWAY_COMPLETE"
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
# After this time nothing is completed.
_ANSWER_SECONDS = 1.0
_MOST = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and names.

    For bash put this line into ~/.bashrc:

    \b
      eval "$(headway completion bash)"

    For zsh the same with zsh into ~/.zshrc, after compinit. For fish:

    \b
      headway completion fish > ~/.config/fish/completions/headway.fish
    """  # noqa: D301 - click leaves a paragraph alone that begins so
    script = _SHELLS[shell](context.find_root().command, {}, "headway", VARIABLE)
    click.echo(script.source())


def _names_of(list_name: str, field: str, *, narrowed: bool = False) -> Complete:
    """Complete names in a list of the API; `narrowed` if the list can be filtered by text."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        query = {"text": incomplete} if narrowed and incomplete else {}
        taken = context.params.get(parameter.name or "") or ()
        try:
            found = _read_list(context, f"/{list_name}", query)
        except Exception:  # noqa: BLE001 - an error message would garble the command line
            return []
        names = {str(item.get(field, "")) for item in found} - set(taken)
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]

    return complete


def _read_list(context: click.Context, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
    # Not above: `headway completion` itself does not need it.
    from headway_cli.serve.session import Session  # noqa: PLC0415

    data, url = context.params.get("data"), context.params.get("url")
    address = Session(data=Path(data or ".headway"), url=url).address()

    async def read() -> list[dict[str, Any]]:
        async with asyncio.timeout(_ANSWER_SECONDS), address.control() as control:
            return await control.list(path, query, dict[str, Any], most=_MOST)

    return run(read())


complete_manifests = _names_of("manifests", "external_id", narrowed=True)
complete_groups = _names_of("groups", "name")
complete_jobs = _names_of("jobs", "name", narrowed=True)
complete_workers = _names_of("workers", "worker")
complete_apps = _names_of("apps", "name")


def named(flag: str, metavar: str, text: str, complete: Complete) -> options.Decorator:
    """Declare an option that takes a name which a shell can complete."""
    return click.option(flag, metavar=metavar, help=text, shell_complete=complete)


def several(name: str, metavar: str, complete: Complete) -> options.Decorator:
    """Declare an argument that takes one or more names."""
    terms: Any = {"nargs": -1, "required": True, "shell_complete": complete}
    return click.argument(name, metavar=metavar, **terms)


manifest_argument = click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
worker_filter = named("--worker", "NAME", "Only by this worker.", complete_workers)
work_filter = options.id_option("--work", "Only of this work.")
filters = options.together(
    named("--group", "NAME", "Only of this group.", complete_groups),
    named("--job", "NAME", "Only of this job.", complete_jobs),
    named("--manifest", "ID", "Only of this manifest.", complete_manifests),
)

choosing = options.together(
    click.argument("manifest_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_manifests),
    named("--group", "NAME", "All manifests of a group.", complete_groups),
    options.pairs("--label", "labels", "NAME=VALUE", "Manifests with this label; may be repeated."),
    options.flag("--all", "All manifests.", "everything"),
)


def check_choice(manifest_ids: tuple[str, ...], **chosen: Any) -> None:
    """Refuse a command line that selects no manifests, or selects them in two ways."""
    if sum((bool(manifest_ids), *map(bool, chosen.values()))) != 1:
        raise click.UsageError("give ids of manifests, or --group, or --label, or --all")
