"""Messages about retired jobs: no application declares them, and no new work of them is made."""

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Any

from headway.define.definitions import API_OWNER

# How many manifests a warning names.
_MOST_NAMED = 5


def retired(job: str, since: datetime) -> str:
    """Say that a job is retired, and the remedy."""
    return (
        f"job {job!r} is retired, because no application declares it since "
        f"{since:%Y-%m-%d %H:%M:%S} UTC: declare the job again, or use another one"
    )


def warnings_of_use(uses: Iterable[Any]) -> list[str]:
    """Warn about manifests whose job is retired, a line for each job.

    `uses` are rows with `job`, `external_id` and `owner`, in the order of the jobs.
    """
    warnings = []
    for job, found in groupby(uses, key=lambda row: row["job"]):
        named = [_named(row) for row in found]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        warnings.append(
            f"job {job!r} is retired, because no application declares it, but manifests use it "
            f"and do not fire: {', '.join(named[:_MOST_NAMED])}{more}; declare the job again, or "
            "delete them"
        )
    return warnings


def _named(row: Any) -> str:
    if row["owner"] == API_OWNER:
        return f"{row['external_id']!r} (made at run time)"
    return f"{row['external_id']!r} (of application {row['owner']!r})"
