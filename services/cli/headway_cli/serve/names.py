"""Arguments and options that name manifests, groups, jobs and workers."""

from typing import Any

import click

from headway_cli.serve.completion import (
    complete_groups,
    complete_jobs,
    complete_manifests,
    complete_workers,
)
from headway_cli.terminal import options

manifest_argument = click.argument("manifest_id", metavar="ID", shell_complete=complete_manifests)
group_filter = click.option(
    "--group", metavar="NAME", help="Only of this group.", shell_complete=complete_groups
)
job_filter = click.option(
    "--job", metavar="NAME", help="Only of this job.", shell_complete=complete_jobs
)
manifest_filter = click.option(
    "--manifest", metavar="ID", help="Only of this manifest.", shell_complete=complete_manifests
)
worker_filter = click.option(
    "--worker", metavar="NAME", help="Only by this worker.", shell_complete=complete_workers
)
work_filter = click.option(
    "--work", callback=options.identity, metavar="ID", help="Only of this work."
)
filters = options.together(group_filter, job_filter, manifest_filter)

choosing = options.together(
    click.argument("manifest_ids", metavar="[ID]...", nargs=-1, shell_complete=complete_manifests),
    click.option("--group", help="All manifests of a group.", shell_complete=complete_groups),
    click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        multiple=True,
        callback=options.read_pairs,
        help="All manifests with this label; if repeated, with all of them.",
    ),
    click.option("--all", "everything", is_flag=True, help="All manifests."),
)


def check_choice(manifest_ids: tuple[str, ...], **chosen: Any) -> None:
    """Refuse a command line that selects no manifests, or selects them in two ways."""
    if sum((bool(manifest_ids), *map(bool, chosen.values()))) != 1:
        raise click.UsageError("give ids of manifests, or --group, or --label, or --all")
