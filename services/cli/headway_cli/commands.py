"""The commands, and what their end means to the shell."""

import logging
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from headway_cli.terminal.options import debug_option, start_logging

# Every command in the order in which it is listed: its module, and what it does in a line. All of
# it stands here, so that a list of the commands need not load each of them, which takes seconds.
_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run it": {
        "up": ("up.up", "Run everything for APP on this machine until Ctrl-C."),
        "scheduler": ("serve.services", "Run a scheduler: it decides when work is due."),
        "dispatcher": ("serve.services", "Run a dispatcher: it sees due work through."),
        "console": ("serve.services", "Run a console: the HTTP API and the web pages."),
        "worker": ("serve.services", "Run a worker: it runs the jobs of your app."),
    },
    "Set it up": {
        "migrate": ("serve.services", "Bring the schemas in PostgreSQL up to date."),
        "provision": ("serve.services", "Make the streams and consumers in NATS."),
        "token": ("operate.tokens", "Make tokens for the API and the console."),
        "sign-in": ("operate.tokens", "Print a link that signs you in to the console of 'up'."),
        "settings": ("operate.settings", "Show every setting that holds here, and who says so."),
        "doctor": ("doctor.command", "Check the set-up, and say what to do about it."),
        "notify": ("operate.notify", "Try the webhook for notifications, or make its secret."),
        "completion": (
            "terminal.completion",
            "Let the shell complete commands and names.",
        ),
    },
    "Look": {
        "top": ("top.command", "Show how things stand, live in the terminal."),
        "manifests": ("schedules.show", "List all manifests and how they stand."),
        "manifest": ("schedules.show", "Show one manifest with its definition."),
        "groups": ("schedules.show", "List all groups with their limits."),
        "apps": ("schedules.applications", "List applications; rename, retire or give one back."),
        "jobs": ("schedules.jobs", "List jobs: their limits, what is in use, who serves them."),
        "work": ("work.runs", "List work that is not settled, or show one piece of it."),
        "runs": ("work.runs", "List runs, the newest first, or show one in full."),
        "workers": ("work.workers", "List workers: who lives, who drains, and what they run."),
        "events": ("work.events", "Show what happened, and what happens."),
        "audit": ("history.audit", "Show who changed what, the newest first."),
        "preview": ("schedules.show", "Show the next fire times of a manifest."),
        "explain": ("schedules.show", "Tell why a manifest ran, or did not, or why work waits."),
    },
    "Operate": {
        "trigger": ("schedules.change", "Run manifests now, beside their schedules."),
        "cancel": ("work.runs", "End runs or work early."),
        "dead-letters": ("work.dead_letters", "Work that failed for good and needs a person."),
        "pause": ("schedules.pause", "Let nothing of some manifests begin for a while."),
        "resume": ("schedules.pause", "Let paused manifests go on."),
        "enable": ("schedules.change", "Let manifests fire."),
        "disable": ("schedules.change", "Keep manifests from firing."),
        "change": ("schedules.change", "Change what operators own of a manifest."),
        "group": ("schedules.change", "Change the limits of a group."),
        "job": ("schedules.change", "Change the limits of a job, over all groups."),
        "delete": ("schedules.change", "Delete manifests that no code declares."),
        "enqueue": ("work.enqueue", "Queue work of a job, without a manifest."),
        "enqueued": (
            "work.enqueue",
            "List enqueued work that waits to be queued, or was refused.",
        ),
        "dismiss": ("work.enqueue", "Forget enqueued work that was refused."),
    },
    "Define": {
        "plan": ("schedules.apply", "Show what 'apply' would change, and which fire times."),
        "apply": ("schedules.apply", "Bring definitions to a running scheduler, all or none."),
        "schedule": ("schedules.schedule", "Make, change or delete manifests at run time."),
    },
    "Prove, mend, measure": {
        "verify": ("history.verify", "Prove the ledger and the tables right, or tell what is not."),
        "history": ("history.export", "Take history out of the database."),
        "rebuild": ("history.export", "Write the tables anew from history."),
        "bench": ("bench.command", "Measure Headway on this machine."),
    },
}
_COMMANDS = {name: one for section in _SECTIONS.values() for name, one in section.items()}


class OnDemand(click.Group):
    """A group that loads a command when it is asked for: all of them together take seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name."""
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"headway_cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def told(self, name: str) -> str:
        """What a command does, in a line."""
        return _COMMANDS[name][1]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of the commands, in the help."""
        width = max(map(len, _COMMANDS))
        for title, section in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), one[1]) for name, one in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin so; no command is loaded for it."""
        return [
            *(
                CompletionItem(name, help=one[1])
                for name, one in _COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


@click.group(cls=OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
@click.version_option(package_name="headway-cli", prog_name="headway")
def headway() -> None:
    """Headway decides when work is due and hands it to workers.

    'headway up APP' runs everything on this machine. In production each part is a process of its
    own: prepare with 'migrate' and 'provision', then run as many of 'scheduler', 'dispatcher',
    'console' and 'worker' as you like; 'doctor' says whether it is all in order. 'history' and
    'rebuild' look into the database. All other commands ask the console that HEADWAY_URL names, or
    the 'headway up' of this folder.
    """


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every expected fault is a line with a remedy."""
    try:
        start_logging()
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - the outermost frame: nothing passes unexplained
        # Loaded only now: it knows the faults of every part, and so all of them.
        faults = import_module("headway_cli.terminal.errors")
        explained: int = faults.report(error, debug=logging.getLogger().isEnabledFor(logging.DEBUG))
        return explained
    return code if isinstance(code, int) else 0
