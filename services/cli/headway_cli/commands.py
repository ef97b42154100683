"""The commands, and what their end means to the shell."""

import logging
from importlib import import_module
from typing import Any

import click
from headway_service_kit.process import log_to_stderr

from headway_cli.options import debug_option

# The module of each command, in the order in which they are listed: the one to begin with first.
_MODULES = {
    "up": "up",
    **dict.fromkeys(
        ("migrate", "provision", "scheduler", "dispatcher", "console", "worker"), "services"
    ),
    "token": "token_commands",
    "settings": "settings_command",
    **dict.fromkeys(("manifests", "manifest", "groups", "preview", "explain"), "look_commands"),
    "verify": "verify_command",
    **dict.fromkeys(("work", "runs", "workers"), "work_commands"),
    "dead-letters": "letter_commands",
    "events": "event_commands",
    **dict.fromkeys(("plan", "apply"), "apply_commands"),
    **dict.fromkeys(("enable", "disable"), "change_commands"),
    **dict.fromkeys(("pause", "resume"), "pause_commands"),
    **dict.fromkeys(("change", "group", "job", "trigger"), "change_commands"),
    "cancel": "work_commands",
    "delete": "change_commands",
    **dict.fromkeys(("enqueue", "enqueued", "dismiss"), "enqueue_commands"),
    **dict.fromkeys(("history", "rebuild"), "history_commands"),
    "bench": "bench.command",
}


class OnDemand(click.Group):
    """A group that loads a command when it is asked for: all of them together take seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The names of the commands."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"headway_cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
@click.version_option(package_name="headway-cli", prog_name="headway")
def headway() -> None:
    """Headway decides when work is due and hands it to workers.

    'headway up APP' runs everything on this machine. In production each part is a process of its
    own: prepare with 'migrate' and 'provision', then run as many of 'scheduler', 'dispatcher',
    'console' and 'worker' as you like. 'history' and 'rebuild' look into the database. All other
    commands ask the console that HEADWAY_URL names, or the 'headway up' of this folder.
    """


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every expected fault is a line with a remedy."""
    log_to_stderr()
    try:
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - the outermost frame: nothing passes unexplained
        # Loaded only now: it knows the faults of every part, and so all of them.
        faults = import_module("headway_cli.faults")
        explained: int = faults.report(error, debug=logging.getLogger().isEnabledFor(logging.DEBUG))
        return explained
    return code if isinstance(code, int) else 0
