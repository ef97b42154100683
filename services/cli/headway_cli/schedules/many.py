"""Changes of several manifests: confirm them with their number, apply them, list the results."""

from typing import Any, Literal

import click
from headway import Client
from headway_contract.manifests import ManifestResult
from headway_errors import Conflict, Rejected

from headway_cli.serve.session import Session
from headway_cli.terminal.interaction import confirm
from headway_cli.terminal.output import counted, listed

# How many results are printed one by one.
_LISTED = 20


def change_many(
    session: Session,
    action: Literal["enable", "disable", "run"],
    chosen: dict[str, Any],
    manifest_ids: tuple[str, ...] = (),
    *,
    yes: bool,
    key: str | None = None,
) -> None:
    """Ask for confirmation with the number of manifests, then change them."""

    def change(*, dry_run: bool) -> list[ManifestResult]:
        return session.ask(
            lambda client: client.change_many(
                *manifest_ids, action=action, dry_run=dry_run, key=key, **chosen
            )
        )

    def describe() -> str:
        names = [result.manifest for result in change(dry_run=True)]
        return f"{action} {counted(len(names), 'manifest')} ({listed(names)})"

    confirm(describe, yes=yes)
    results = change(dry_run=False)
    session.print(results, lambda: _some([item.text for item in results if item.done]))
    refused = [result.text for result in results if not result.done]
    if refused:
        raise Conflict("\n".join(_some(refused)))


def _some(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return [*lines[:_LISTED], *more]


def change_each(session: Session, manifest_ids: tuple[str, ...], act: Any) -> None:
    """Change manifests one after the other; refusals are raised together at the end."""
    done: list[Any] = []
    refused: list[str] = []

    async def ask(client: Client) -> None:
        for manifest_id in manifest_ids:
            try:
                done.append(await act(client, manifest_id))
            except Rejected as error:
                refused.append(str(error))
                continue
            if not session.as_json:
                click.echo(done[-1].text)

    session.ask(ask)
    if session.as_json and done:
        session.print(done, list)
    if refused:
        raise Conflict("\n".join(refused))
