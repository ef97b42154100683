"""`headway completion`: the script by which a shell completes commands, options and names.

Commands and options are known here. Names (manifests, groups, jobs, workers) are asked of the
Headway that the command would ask; if it does not answer at once, nothing is offered and nothing
is said, for whoever presses Tab is in the middle of a word.
"""

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class
from headway_clock import monotonic

VARIABLE = "_HEADWAY_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_ANSWER_SECONDS = 1.0
_MOST = 200

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Let the shell complete commands, options and names.

    It prints a script for the shell. For bash put this line into ~/.bashrc:

    \b
      eval "$(headway completion bash)"

    For zsh the same with zsh into ~/.zshrc, after compinit. For fish:

    \b
      headway completion fish > ~/.config/fish/completions/headway.fish
    """  # noqa: D301 - click leaves a paragraph alone that begins so
    # Not above: the commands know this one.
    from headway_cli.commands import headway  # noqa: PLC0415

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"{shell}: this version of click has no script for it")
    click.echo(made(headway, {}, "headway", VARIABLE).source())


def names_of(list_name: str, field: str, *, narrowed: bool = False) -> Complete:
    """Completes names that a list of the API has; `narrowed` if the list takes a text."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        query = {"limit": str(_MOST), **({"text": incomplete} if narrowed and incomplete else {})}
        taken = context.params.get(parameter.name or "") or ()
        found = _ask(context, f"/{list_name}?{urlencode(query)}")
        names = [str(one.get(field, "")) for one in found]
        return [
            CompletionItem(name)
            for name in names
            if name.startswith(incomplete) and name not in taken
        ]

    return complete


def _ask(context: click.Context, path: str) -> list[dict[str, object]]:
    """The entries of a list; none if anything at all is in the way."""
    try:
        return _entries(context, path)
    except Exception:  # noqa: BLE001 - nobody wants to read it while typing
        return []


def _entries(context: click.Context, path: str) -> list[dict[str, object]]:
    # Not above: `headway completion` itself asks nobody.
    from headway_contract.routes import API  # noqa: PLC0415

    from headway_cli.terminal.connect import Reached  # noqa: PLC0415

    data, url = context.params.get("data"), context.params.get("url")
    given = Reached(data=Path(data or ".headway"), url=url).settings()
    where = urlsplit(given.url)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    ends_at = monotonic() + _ANSWER_SECONDS
    connection = kind(where.hostname or "", where.port, timeout=_ANSWER_SECONDS)
    try:
        headers = {"Authorization": f"Bearer {given.token}"} if given.token else {}
        connection.request("GET", where.path.rstrip("/") + API + path, headers=headers)
        if connection.sock is not None:
            connection.sock.settimeout(max(0.05, ends_at - monotonic()))
        reply = connection.getresponse()
        items: list[dict[str, object]] = json.loads(reply.read())["items"]
        return items if reply.status == http.client.OK else []
    finally:
        connection.close()


complete_manifests = names_of("manifests", "external_id", narrowed=True)
complete_groups = names_of("groups", "name")
complete_jobs = names_of("jobs", "name", narrowed=True)
complete_workers = names_of("workers", "worker")
complete_apps = names_of("apps", "name")
