"""The commands, and what their end means to the shell."""

import logging
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem
from headway_service_kit.process import log_to_stderr

from headway_cli.options import debug_option

# Every command in the order in which it is listed: its module, and what it does in a line. All of
# it stands here, so that a list of the commands need not load each of them, which takes seconds.
_SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run it": {
        "up": ("up", "Run everything for APP on this machine until Ctrl-C."),
        "scheduler": ("services", "Run a scheduler: it decides when work is due."),
        "dispatcher": ("services", "Run a dispatcher: it sees due work through."),
        "console": ("services", "Run a console: the HTTP API and the web pages."),
        "worker": ("services", "Run a worker: it runs the jobs of your app."),
    },
    "Set it up": {
        "migrate": ("services", "Bring the schemas in PostgreSQL up to date."),
        "provision": ("services", "Make the streams and consumers in NATS."),
        "token": ("token_commands", "Make tokens for the API and the console."),
        "sign-in": ("token_commands", "Print a link that signs you in to the console of 'up'."),
        "settings": ("settings_command", "Show every setting that holds here, and who says so."),
        "doctor": ("doctor.command", "Check the set-up, and say what to do about it."),
        "notify": ("notify_commands", "Try the webhook for notifications, or make its secret."),
        "completion": ("completion", "Let the shell complete commands, options and names."),
    },
    "Look": {
        "top": ("top.command", "Show how things stand, live in the terminal."),
        "manifests": ("look_commands", "List all manifests and how they stand."),
        "manifest": ("look_commands", "Show one manifest with its definition."),
        "groups": ("look_commands", "List all groups with their limits."),
        "apps": ("app_commands", "List applications; rename, retire or give one back."),
        "jobs": ("job_commands", "List jobs: their limits, what is in use, who serves them."),
        "work": ("work_commands", "List work that is not settled, or show one piece of it."),
        "runs": ("work_commands", "List runs, the newest first, or show one in full."),
        "workers": ("workers_command", "List workers: who lives, who drains, and what they run."),
        "events": ("event_commands", "Show what happened, and what happens."),
        "audit": ("audit_command", "Show who changed what, the newest first."),
        "preview": ("look_commands", "Show the next fire times of a manifest."),
        "explain": ("look_commands", "Tell why a manifest ran, or did not, or why work waits."),
    },
    "Operate": {
        "trigger": ("change_commands", "Run manifests now, beside their schedules."),
        "cancel": ("work_commands", "End runs or work early."),
        "dead-letters": ("letter_commands", "Work that failed for good and needs a person."),
        "pause": ("pause_commands", "Let nothing of some manifests begin for a while."),
        "resume": ("pause_commands", "Let paused manifests go on."),
        "enable": ("change_commands", "Let manifests fire."),
        "disable": ("change_commands", "Keep manifests from firing."),
        "change": ("change_commands", "Change what operators own of a manifest."),
        "group": ("change_commands", "Change the limits of a group."),
        "job": ("change_commands", "Change the limits of a job, over all groups."),
        "delete": ("change_commands", "Delete manifests that no code declares."),
        "enqueue": ("enqueue_commands", "Queue work of a job, without a manifest."),
        "enqueued": (
            "enqueue_commands",
            "List enqueued work that waits to be queued, or was refused.",
        ),
        "dismiss": ("enqueue_commands", "Forget enqueued work that was refused."),
    },
    "Define": {
        "plan": ("apply_commands", "Show what 'apply' would change, and which fire times."),
        "apply": ("apply_commands", "Bring definitions to a running scheduler, all or none."),
        "schedule": ("schedule_commands", "Make, change or delete manifests at run time."),
    },
    "Prove, mend, measure": {
        "verify": ("verify_command", "Prove the ledger and the tables right, or tell what is not."),
        "history": ("history_commands", "Take history out of the database."),
        "rebuild": ("history_commands", "Write the tables anew from history."),
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
    log_to_stderr()
    try:
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - the outermost frame: nothing passes unexplained
        # Loaded only now: it knows the faults of every part, and so all of them.
        faults = import_module("headway_cli.faults")
        explained: int = faults.report(error, debug=logging.getLogger().isEnabledFor(logging.DEBUG))
        return explained
    return code if isinstance(code, int) else 0
