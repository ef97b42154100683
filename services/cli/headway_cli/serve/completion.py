"""`headway completion`: the script with which a shell completes commands, options and names.

Names of manifests, groups, jobs, workers and apps come from the console that the command would
ask. If it does not answer within a second, nothing is completed and nothing is printed.
"""

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class

VARIABLE = "_HEADWAY_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_ANSWER_SECONDS = 1.0
_MOST = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
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
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"this version of click has no completion script for {shell}")
    click.echo(made(context.find_root().command, {}, "headway", VARIABLE).source())


def _names_of(list_name: str, field: str, *, narrowed: bool = False) -> Complete:
    """Complete names in a list of the API; `narrowed` if the list can be filtered by text."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        query = {"limit": str(_MOST), **({"text": incomplete} if narrowed and incomplete else {})}
        taken = context.params.get(parameter.name or "") or ()
        try:
            found = _read_list(context, f"/{list_name}?{urlencode(query)}")
        except Exception:  # noqa: BLE001 - an error message would garble the command line
            return []
        names = [str(item.get(field, "")) for item in found]
        return [
            CompletionItem(name)
            for name in names
            if name.startswith(incomplete) and name not in taken
        ]

    return complete


def _read_list(context: click.Context, path: str) -> list[dict[str, object]]:
    # Not above: `headway completion` itself needs neither.
    from headway_contract.http import API  # noqa: PLC0415

    from headway_cli.serve.session import Session  # noqa: PLC0415

    data, url = context.params.get("data"), context.params.get("url")
    address = Session(data=Path(data or ".headway"), url=url).address()
    where = urlsplit(address.url)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    with closing(kind(where.hostname or "", where.port, timeout=_ANSWER_SECONDS)) as connection:
        connection.request("GET", where.path.rstrip("/") + API + path, headers=headers)
        reply = connection.getresponse()
        items: list[dict[str, object]] = json.loads(reply.read())["items"]
        return items if reply.status == http.client.OK else []


complete_manifests = _names_of("manifests", "external_id", narrowed=True)
complete_groups = _names_of("groups", "name")
complete_jobs = _names_of("jobs", "name", narrowed=True)
complete_workers = _names_of("workers", "worker")
complete_apps = _names_of("apps", "name")
