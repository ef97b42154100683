"""The list of commands, and the exit code of each."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import CompletionItem

from headway_cli.errors import report
from headway_cli.terminal.options import debug_option, start_logging

# Every command in the order of the help, with its module and one line of help. The lines are here
# because loading all commands takes seconds.
_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "up": ("up.up", "Run everything for APP on this machine until Ctrl-C."),
        "run": ("work.foreground", "Run a job of your app once, here and without a schedule."),
        "scheduler": ("serve.services", "Run a scheduler, which decides when work is due."),
        "dispatcher": ("serve.services", "Run a dispatcher, which hands due work to workers."),
        "console": ("serve.services", "Run a console: the HTTP API and the web pages."),
        "worker": ("serve.worker", "Run a worker, which runs the jobs of your app."),
    },
    "Set up": {
        "init": ("operate.init", "Write a small app, and files that belong to it."),
        "migrate": ("serve.services", "Bring the schemas in PostgreSQL up to date."),
        "provision": ("serve.services", "Create or update the streams and consumers in NATS."),
        "token": ("operate.set_up", "Create tokens for the API and the console."),
        "sign-in": ("operate.set_up", "Print a link that signs you in to the console of 'up'."),
        "settings": ("operate.set_up", "Show the settings in effect and their sources."),
        "doctor": ("doctor.command", "Check the installation and print remedies."),
        "notify": ("operate.set_up", "Test the webhook for notifications, or create its secret."),
        "completion": ("serve.names", "Print a script that completes commands and options."),
    },
    "Look": {
        "top": ("top.command", "Show the live state of the system."),
        "manifests": ("schedules.show", "List manifests and their state."),
        "manifest": ("schedules.show", "Show one manifest with its definition."),
        "pauses": ("schedules.pause", "List the pauses in force."),
        "groups": ("schedules.show", "List groups with their limits."),
        "apps": (
            "schedules.change",
            "List applications; rename, retire or give back one.",
        ),
        "jobs": ("schedules.show", "List jobs with their limits and workers."),
        "work": ("work.runs", "List work that is not settled, or show one piece of work."),
        "runs": ("work.runs", "List runs, the newest first, or show one run."),
        "logs": ("work.logs", "Print the log of a run, or follow it."),
        "failing": ("work.failing", "List the jobs that fail, by the share of failed runs."),
        "workers": ("work.runs", "List workers, or drain some."),
        "events": ("work.events", "Show past events, or follow new ones."),
        "audit": ("history.audit", "List changes with their actors, the newest first."),
        "preview": ("schedules.show", "Show the next fire times of a manifest."),
        "explain": ("schedules.show", "Explain why a manifest ran or did not, or why work waits."),
    },
    "Operate": {
        "trigger": ("schedules.operate", "Run manifests now, in addition to their schedules."),
        "cancel": ("work.runs", "Cancel runs or work."),
        "dead-letters": ("work.dead_letters", "List, show, retry or acknowledge dead letters."),
        "pause": ("schedules.pause", "Pause manifests for a while."),
        "resume": ("schedules.pause", "End pauses, so that their manifests resume."),
        "enable": ("schedules.change", "Enable manifests."),
        "disable": ("schedules.change", "Disable manifests."),
        "change": ("schedules.change", "Change the operator settings of a manifest."),
        "group": ("schedules.change", "Change the limits of a group."),
        "job": ("schedules.change", "Change the limits of a job, over all groups."),
        "delete": ("schedules.change", "Delete manifests that no code declares."),
        "enqueue": ("work.runs", "Queue work of a job, without a manifest."),
        "enqueued": ("work.runs", "List enqueued work that is not queued yet or was refused."),
        "dismiss": ("work.runs", "Dismiss enqueued work that was refused."),
    },
    "Define": {
        "plan": ("schedules.apply", "Show changes of manifests and fire times before 'apply'."),
        "apply": ("schedules.apply", "Apply definitions to a running scheduler, all or none."),
        "schedule": ("schedules.schedule", "Create, change or delete manifests at run time."),
    },
    "Diagnostics and repair": {
        "verify": ("history.tables", "Verify the ledger and the tables; print differences."),
        "history": ("history.tables", "Export history from the database."),
        "rebuild": ("history.tables", "Rebuild the tables from history."),
        "bench": ("bench.command", "Measure Headway on this machine."),
    },
}
COMMANDS = {name: command for section in _SECTIONS.values() for name, command in section.items()}


class ServerMissing(click.ClickException):
    """A command needs the services, and only `headway` is installed."""

    exit_code = 2

    def __init__(self, command: str) -> None:
        super().__init__(f"headway {command} needs the server: pip install 'headway[server]'")


class OnDemand(click.Group):
    """A group that loads a command only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """List the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        try:
            module = import_module(f"headway_cli.{COMMANDS[cmd_name][0]}")
        except ModuleNotFoundError as error:
            if find_spec("headway_postgres_kit") is not None:
                raise
            raise ServerMissing(cmd_name) from error
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands in the help."""
        width = max(map(len, COMMANDS))
        for title, section in _SECTIONS.items():
            rows = [(name.ljust(width), line) for name, (_, line) in section.items()]
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and options without loading a command."""
        found = {name: line for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)}
        commands = [CompletionItem(name, help=line) for name, line in found.items()]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
@click.version_option(package_name="headway", prog_name="headway")
def headway() -> None:
    """Headway decides when work is due and hands it to workers.

    'headway up APP' runs everything on this machine. In production each part is a process of its
    own: prepare with 'migrate' and 'provision', then run as many of 'scheduler', 'dispatcher',
    'console' and 'worker' as you like, and check the installation with 'doctor'. 'history' and
    'rebuild' read the database. All other commands call the console at HEADWAY_URL, or the
    'headway up' of this folder.
    """


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        start_logging()
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - the outermost frame reports everything
        return report(error, debug=logging.getLogger().isEnabledFor(logging.DEBUG))
    return code if isinstance(code, int) else 0
