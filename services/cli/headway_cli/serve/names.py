"""Names in arguments and options, and the script that completes commands in a shell."""

from typing import Any

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from headway_cli.terminal import options

VARIABLE = "_HEADWAY_COMPLETE"
_SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options.

    For bash put this line into ~/.bashrc:

    \b
      eval "$(headway completion bash)"

    For zsh the same with zsh into ~/.zshrc, after compinit. For fish:

    \b
      headway completion fish > ~/.config/fish/completions/headway.fish
    """  # noqa: D301 - click leaves a paragraph alone that begins so
    script = _SHELLS[shell](context.find_root().command, {}, "headway", VARIABLE)
    click.echo(script.source())


manifest_argument = click.argument("manifest_id", metavar="ID")
worker_filter = options.text("--worker", "NAME", "Only by this worker.")
work_filter = options.id_option("--work", "Only of this work.")
filters = options.together(
    options.text("--group", "NAME", "Only of this group."),
    options.text("--job", "NAME", "Only of this job."),
    options.text("--manifest", "ID", "Only of this manifest."),
)

selecting = options.together(
    options.text("--group", "NAME", "All manifests of a group."),
    options.pairs("--label", "labels", "NAME=VALUE", "Manifests with this label; may be repeated."),
    options.flag("--all", "All manifests.", "everything"),
)
choosing = options.together(
    click.argument("manifest_ids", metavar="[ID]...", nargs=-1),
    selecting,
)


def check_choice(manifest_ids: tuple[str, ...], **chosen: Any) -> None:
    """Refuse a command line that selects no manifests, or selects them in two ways."""
    if sum((bool(manifest_ids), *map(bool, chosen.values()))) != 1:
        raise click.UsageError("give ids of manifests, or --group, or --label, or --all")
