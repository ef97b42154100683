"""The commands, and what their end means to the shell."""

import logging
from typing import Any

import click
from headway_service_kit.process import log_to_stderr

from headway_cli.apply_commands import apply, plan
from headway_cli.bench.command import bench
from headway_cli.change_commands import change, delete, disable, enable, group, job, trigger
from headway_cli.enqueue_commands import dismiss, enqueue, enqueued
from headway_cli.event_commands import events
from headway_cli.faults import INTERRUPTED, report_fault, report_misuse
from headway_cli.history_commands import history, rebuild
from headway_cli.letter_commands import dead_letters
from headway_cli.look_commands import explain, groups, manifest, manifests, preview
from headway_cli.options import debug_option
from headway_cli.pause_commands import pause, resume
from headway_cli.services import console, dispatcher, migrate, provision, scheduler, worker
from headway_cli.settings_command import settings
from headway_cli.token_commands import token
from headway_cli.up import up
from headway_cli.verify_command import verify
from headway_cli.work_commands import cancel, runs, work, workers


class InOrder(click.Group):
    """A group that lists its commands as they were added, the one to begin with first."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's
        """The names of the commands."""
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@debug_option
@click.version_option(package_name="headway-cli", prog_name="headway")
def headway() -> None:
    """Headway decides when work is due and hands it to workers.

    'headway up APP' runs everything on this machine. In production each part is a process of its
    own: prepare with 'migrate' and 'provision', then run as many of 'scheduler', 'dispatcher',
    'console' and 'worker' as you like. 'history' and 'rebuild' look into the database. All other
    commands ask the console that HEADWAY_URL names, or the 'headway up' of this folder.
    """


_RUNNING = (up, migrate, provision, scheduler, dispatcher, console, worker, token, settings)
_ASKING = (
    *(manifests, manifest, groups, preview, explain, verify),
    *(work, runs, workers, dead_letters, events),
    *(plan, apply, enable, disable, pause, resume, change, group, job, trigger, cancel, delete),
    *(enqueue, enqueued, dismiss),
)
_LOOKING = (history, rebuild)
for command in (*_RUNNING, *_ASKING, *_LOOKING, bench):
    headway.add_command(command)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every expected fault is a line with a remedy."""
    log_to_stderr()
    try:
        code: Any = headway.main(arguments, prog_name="headway", standalone_mode=False)
    except click.ClickException as error:
        return report_misuse(error)
    except click.Abort:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: nothing passes unexplained
        return report_fault(error, debug=logging.getLogger().isEnabledFor(logging.DEBUG))
    return code if isinstance(code, int) else 0
