"""The limits in force for groups and jobs."""

from headway_contract.fields import Rate
from msgspec import Struct, field

from headway_decisions.capacity import packing
from headway_decisions.capacity.rates import Bundle


class Limit(Struct, frozen=True, kw_only=True):
    """The limits in force for a group or a job, and its recent starts under its rate."""

    max_active: int | None = None
    rate: Rate | None = None
    begun: tuple[Bundle, ...] = ()


class GroupLimit(Limit, frozen=True, kw_only=True):
    """The limits in force for a group."""

    enabled: bool = True


class JobLimit(Limit, frozen=True, kw_only=True):
    """The limits in force for a job, its stated maximum of runs in a lease, and their duration."""

    counts_globally: bool = True
    batch: int | None = None
    seconds: float | None = None

    @property
    def lease_size(self) -> int:
        """The most runs in one lease."""
        return packing.lease_size(self.batch, self.seconds)


class Limits(Struct, frozen=True, kw_only=True):
    """Every limit in force; other groups and jobs have none."""

    max_active: int
    groups: dict[str, GroupLimit] = field(default_factory=dict)
    jobs: dict[str, JobLimit] = field(default_factory=dict)

    def group(self, name: str) -> GroupLimit:
        """Return the limits of a group."""
        return self.groups.get(name, _NO_GROUP_LIMIT)

    def job(self, name: str) -> JobLimit:
        """Return the limits of a job."""
        return self.jobs.get(name, _NO_JOB_LIMIT)


_NO_GROUP_LIMIT = GroupLimit()
_NO_JOB_LIMIT = JobLimit()
