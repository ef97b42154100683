"""Definitions of manifests that are made at run time, put together as an `App`'s are.

Their job is known by its name alone: what its input has to look like, only the scheduler
can say.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from headway.assembly import assemble
from headway.batches import BatchDraft, Configure, Items, add_batch
from headway.declarations import Declarations, Draft, Terms
from headway.definitions import API_OWNER, Definitions
from headway.jobs import RemoteJob
from headway.when import When, read_when, refuse_unknown


def one_manifest(
    external_id: str, *, job: str, when: When, given: Any, terms: Terms
) -> Definitions:
    """Definitions of a single manifest; raises with all problems at once."""
    refuse_unknown("schedule", terms, Terms)
    declared = _declarations(job)
    cadence = read_when(when, f"manifest {external_id!r}", declared.problems)
    declared.drafts.append(
        Draft(external_id=external_id, job=job, when=cadence, input=given, terms=terms)
    )
    return _assembled(declared)


def one_batch(
    name: str,
    *,
    job: str,
    items: Items,
    when: When,
    key: Callable[[Any], str | int] | None,
    prune: bool,
    configure: Configure | None,
    terms: Terms,
) -> Definitions:
    """Definitions of a batch; raises with all problems at once."""
    refuse_unknown("schedule_many", terms, Terms)
    declared = _declarations(job)
    batch = BatchDraft(
        name=name, job=job, items=items, when=read_when(when, f"batch {name!r}", declared.problems),
        key=key, prune=prune, configure=configure, terms=terms,
    )  # fmt: skip
    add_batch(declared, batch)
    return _assembled(declared)


def _declarations(job: str) -> Declarations:
    declared = Declarations(owner=API_OWNER)
    declared.add_job(RemoteJob(name=job, group=job))
    return declared


def _assembled(declared: Declarations) -> Definitions:
    # The job belongs to the application that has declared it.
    return structs.replace(assemble(declared), jobs=())
