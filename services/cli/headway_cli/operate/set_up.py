"""`headway token`, `headway sign-in`, `headway notify` and `headway settings`."""

import base64
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from headway_clock import new_token as random_token
from headway_clock import utc_now
from headway_console.public import new_token, sign_in_path, token_as_yaml
from headway_contract.http import ROLES, Role
from headway_service_kit.settings_text import Effective, in_words

from headway_cli.serve.known_settings import SECTIONS, Section, is_wrong, settings_of
from headway_cli.serve.running import find_running
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import print_answer, print_json, table
from headway_cli.terminal.times import shifted

BAD_SETTINGS = 2


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
@click.option("--days", type=options.POSITIVE, metavar="N", help="Days until it expires.")
@options.json_option
def new(name: str, role: Role, days: float | None, as_json: bool) -> None:
    """Create a token.

    Prints the token once, on standard error, and on standard output the entry for the file that
    HEADWAY_API_TOKENS_FILE names: append it with '>> tokens.yaml'. With --json, both are in one
    document.
    """
    expires = None if days is None else shifted(utc_now(), days=days).replace(microsecond=0)
    made, entry = new_token(name, role, expires)
    if as_json:
        print_json({"token": made, "entry": entry})
        return
    click.echo(f"the token, shown once: {made}", err=True)
    click.echo(token_as_yaml(entry), nl=False)


@click.command("sign-in")
@options.debug_option
@options.data_option("Data folder of the 'headway up' to sign in to.")
@options.json_option
def sign_in(data: Path, as_json: bool) -> None:
    """Print a link that signs you in to the console of 'up'.

    The link works once, within ten minutes.
    """
    running = find_running(data)
    url = running.url + sign_in_path(running.ticket_key, utc_now())
    print_answer({"url": url}, lambda: [url], as_json=as_json)


@click.group()
def notify() -> None:
    """Test the webhook for notifications, or create its secret."""


@command(of=notify)
def test(session: Session) -> None:
    """Send a test notification to the webhook now."""
    session.print_text(session.ask(lambda client: client.test_notification()))


@notify.command()
@options.json_option
def secret(as_json: bool) -> None:
    """Print a new secret for HEADWAY_WEBHOOK_SECRET, which the receiver needs too."""
    made = "whsec_" + base64.b64encode(bytes.fromhex(random_token() + random_token())).decode()
    print_answer({"secret": made}, lambda: [made], as_json=as_json)


@click.command()
@click.argument("part", type=click.Choice([section.name for section in SECTIONS]), required=False)
@options.flag("--changed", "Only settings that differ from their default.")
@options.json_option
@options.debug_option
def settings(part: str | None, changed: bool, as_json: bool) -> int:
    """Show the settings in effect and their sources.

    Name a PART to see only its settings. Passwords are masked. The exit code is 2 if a setting
    cannot be read.
    """
    chosen = [section for section in SECTIONS if part in (None, section.name)]
    usual = (None, "default") if changed else ()
    found = {
        section: [setting for setting in settings_of(section) if setting.source not in usual]
        for section in chosen
    }
    every = [(section.name, setting) for section in chosen for setting in found[section]]
    shown = [{"part": name, **msgspec.to_builtins(setting)} for name, setting in every]
    print_answer(shown, lambda: _lines(found), as_json=as_json)
    return BAD_SETTINGS if any(is_wrong(setting) for _, setting in every) else 0


def _lines(found: dict[Section, list[Effective]]) -> Iterator[str]:
    for section, effective in found.items():
        if not effective:
            continue
        yield section.title
        rows = []
        for setting in effective:
            value = in_words(setting.value)
            if setting.problem is not None:
                given = setting.source is not None
                value = f"{setting.value}: {setting.problem}" if given else setting.problem
            rows.append((setting.variable, value, setting.source))
        yield from (f"  {line}" for line in table(("setting", "value", "from"), rows))
        yield ""
