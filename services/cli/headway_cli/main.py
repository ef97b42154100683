"""The entrance: commands, and every expected fault as one line with a remedy."""

import os
import sys
from typing import Any

import click
from headway.definitions import InvalidDefinitions
from headway_contract import InvalidName
from headway_dispatcher.provisioning import NotProvisioned
from headway_embedded import EmbeddedError
from headway_jetstream_kit import BrokerUnavailable
from headway_postgres_kit import DatabaseUnavailable, SchemaMismatch
from headway_service_kit.health import AddressInUse
from headway_service_kit.process import log_to_stderr
from headway_service_kit.settings import InvalidSettings

from headway_cli.apps import AppNotFound
from headway_cli.services import dispatcher, migrate, provision, scheduler, worker
from headway_cli.up import UpFailed, up

_REMEDIES: dict[type[Exception], str] = {
    DatabaseUnavailable: "PostgreSQL is not reachable (check HEADWAY_DATABASE_URL): ",
    BrokerUnavailable: "NATS is not reachable (check HEADWAY_NATS_URL): ",
    InvalidSettings: "settings: ",
    InvalidDefinitions: "",
    InvalidName: "",
    NotProvisioned: "",
    EmbeddedError: "",
    SchemaMismatch: "",
    AddressInUse: "",
    AppNotFound: "",
    UpFailed: "",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Log more, and show tracebacks.")
@click.version_option(package_name="headway-cli", prog_name="headway")
def headway(debug: bool) -> None:
    """Headway: a distributed job scheduler."""
    log_to_stderr(debug=debug)


for command in (up, scheduler, dispatcher, worker, migrate, provision):
    headway.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments or bool(os.environ.get("HEADWAY_DEBUG"))
    try:
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except tuple(_REMEDIES) as error:
        if debug:
            raise
        prefix = next(text for kind, text in _REMEDIES.items() if isinstance(error, kind))
        for line in str(error).splitlines():
            click.echo(f"headway: {prefix}{line}", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
