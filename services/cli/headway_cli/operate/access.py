"""`headway token`, `headway sign-in` and `headway notify`: credentials and secrets."""

import base64
from datetime import timedelta
from pathlib import Path

import click
from headway_clock import new_token as random_token
from headway_clock import utc_now
from headway_console.public import new_token, sign_in_path, token_as_yaml
from headway_contract.http import ROLES, Role

from headway_cli.serve.running import find_running
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options


@click.group()
def token() -> None:
    """Create tokens for the API and the console."""


@token.command()
@click.option("--name", required=True, help="Owner of the token, as the audit names it.")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="viewer: read; operator: also run, cancel, retry, switch; admin: also definitions.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Days until it expires.",
)
def new(name: str, role: Role, days: float | None) -> None:
    """Create a token.

    Prints the token once, on standard error, and on standard output the entry for the file that
    HEADWAY_API_TOKENS_FILE names: append it with '>> tokens.yaml'.
    """
    expires = None if days is None else (utc_now() + timedelta(days=days)).replace(microsecond=0)
    made, entry = new_token(name, role, expires)
    click.echo(f"the token, shown once: {made}", err=True)
    click.echo(token_as_yaml(entry), nl=False)


@click.command("sign-in")
@options.debug_option
@options.data_option("Data folder of the 'headway up' to sign in to.")
def sign_in(data: Path) -> None:
    """Print a link that signs you in to the console of 'up'.

    The link works once, within ten minutes.
    """
    running = find_running(data)
    click.echo(running.url + sign_in_path(running.ticket_key, utc_now()))


@click.group()
def notify() -> None:
    """Test the webhook for notifications, or create its secret."""


@command(of=notify)
def test(session: Session) -> None:
    """Send a test notification to the webhook now."""
    session.print_text(session.ask(lambda client: client.test_notification()))


@notify.command()
def secret() -> None:
    """Print a new secret for HEADWAY_WEBHOOK_SECRET, which the receiver needs too."""
    click.echo("whsec_" + base64.b64encode(bytes.fromhex(random_token() + random_token())).decode())
