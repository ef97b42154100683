"""Which consumers to make and which to delete, so that exactly the declared jobs have one."""

from collections.abc import Collection, Mapping

from msgspec import Struct


class ConsumerChanges(Struct, frozen=True, kw_only=True):
    """Jobs whose consumer is to be made or brought up to date, and jobs whose one is to go."""

    make: list[str]
    delete: list[str]


def judge(
    existing: Collection[str],
    needed: Mapping[str, bool],
    *,
    checked: Collection[str],
    tried: Mapping[str, float],
) -> ConsumerChanges:
    """Compare the jobs that have a consumer with the jobs that need one.

    `needed` has every declared job. `checked` are jobs whose consumer is known to have the right
    settings. Jobs whose turn was longest ago come first (`tried` says when), so that a job that
    cannot get its consumer never holds up the others.
    """
    have = set(existing)
    make = [job for job, is_needed in needed.items() if is_needed]
    make = [job for job in make if job not in have or job not in checked]
    return ConsumerChanges(
        make=sorted(make, key=lambda job: (tried.get(job, float("-inf")), job)),
        delete=sorted(job for job in have if not needed.get(job, False)),
    )
