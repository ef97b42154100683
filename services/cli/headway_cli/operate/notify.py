"""`headway notify`: try the webhook for notifications, and make a secret for it."""

import base64

import click
from headway import Client
from headway_clock import new_token
from headway_contract.scheduling import Changed

from headway_cli.terminal.connect import Reached, asking, json_option, print_json


@click.group()
def notify() -> None:
    """Try the webhook for notifications, or make its secret."""


@notify.command()
@json_option
@asking
def test(reached: Reached, as_json: bool) -> None:
    """Send a test notification to the webhook now, and tell whether it was taken."""

    async def ask(client: Client) -> Changed:
        return await client.test_notification()

    answer = reached.ask(ask)
    if as_json:
        print_json(answer)
    else:
        click.echo(answer.text)


@notify.command()
def secret() -> None:
    """Print a new secret for HEADWAY_WEBHOOK_SECRET, which the receiver needs, too."""
    click.echo("whsec_" + base64.b64encode(bytes.fromhex(new_token() + new_token())).decode())
