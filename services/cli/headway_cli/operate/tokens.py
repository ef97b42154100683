"""`headway token new` and `headway sign-in`: credentials for a person or a program."""

from datetime import timedelta
from pathlib import Path

import click
from headway_clock import utc_now
from headway_console.access import tickets, tokens
from headway_contract.routes import ROLES, Role

from headway_cli.serve.running import find_running
from headway_cli.terminal import options


@click.group()
def token() -> None:
    """Make tokens for the API and the console."""


@token.command()
@click.option("--name", required=True, help="Whose it is; the audit calls them so.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="viewer: look; operator: run, cancel, retry, switch; admin: definitions, too.",
)
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Expires after this."
)
def new(name: str, role: Role, days: float | None) -> None:
    """Make a token.

    Prints the token, which is nowhere else, on standard error, and on standard output the entry
    for the file that HEADWAY_API_TOKENS_FILE names: append it with '>> tokens.yaml'.
    """
    expires = None if days is None else (utc_now() + timedelta(days=days)).replace(microsecond=0)
    made, entry = tokens.new_token(name, role, expires)
    click.echo(f"the token, shown once: {made}", err=True)
    click.echo(tokens.as_yaml(entry), nl=False)


@click.command("sign-in")
@options.debug_option
@options.running_data_option
def sign_in(data: Path) -> None:
    """Print a link that signs you in to the console of 'up'.

    The link works once, within ten minutes.
    """
    running = find_running(data)
    click.echo(running.url + tickets.sign_in_path(running.ticket_key, utc_now()))
