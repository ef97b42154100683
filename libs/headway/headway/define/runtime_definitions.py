"""Definitions of manifests that are created at run time, assembled like those of an `App`.

Their job is known only by name. The scheduler has its input schema and its terms: `inherited` names
the fields that it fills in.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from headway.define.assembly import assemble
from headway.define.chain import BatchDraft, Configure, Items, add_batch
from headway.define.declarations import Declarations, Draft, Terms
from headway.define.defaults import BUILT_IN, Defaults
from headway.define.definitions import API_OWNER, Definitions
from headway.define.jobs import RemoteJob
from headway.define.when import When, read_when, refuse_unknown


def one_manifest(
    external_id: str,
    *,
    job: str,
    when: When | None,
    given: Any,
    depends_on: str | None = None,
    dormant: bool = False,
    terms: Terms,
) -> Definitions:
    """Return the definitions of a single manifest, or raise with all problems at once."""
    refuse_unknown("schedule", terms, Terms)
    declared = _declarations(job)
    called = f"manifest {external_id!r}"
    draft = Draft(
        external_id=external_id,
        job=job,
        when=_cadence(declared, called, when, depends_on, dormant=dormant),
        input=given,
        terms=terms,
        depends_on=depends_on,
        dormant=dormant,
    )
    declared.drafts.append(draft)
    return assembled(declared)


def one_batch(
    name: str,
    *,
    job: str,
    items: Items,
    when: When | None,
    key: Callable[[Any], str | int] | None,
    prune: bool,
    configure: Configure | None,
    depends_on: str | None = None,
    dormant: bool = False,
    terms: Terms,
) -> Definitions:
    """Return the definitions of a batch, or raise with all problems at once."""
    refuse_unknown("schedule_many", terms, Terms)
    declared = _declarations(job)
    cadence = _cadence(declared, f"batch {name!r}", when, depends_on, dormant=dormant)
    batch = BatchDraft(
        name=name, job=job, items=items, when=cadence, parent=depends_on, dormant=dormant,
        key=key, prune=prune, configure=configure, terms=terms,
    )  # fmt: skip
    add_batch(declared, batch)
    return assembled(declared)


def assembled(declared: Declarations, defaults: Defaults = BUILT_IN) -> Definitions:
    """Return definitions that belong to no application, or raise with all problems at once."""
    declared.owner, declared.at_run_time = API_OWNER, True
    # Jobs belong to the application that declared them; the scheduler resolves the groups.
    return structs.replace(assemble(declared, defaults), jobs=(), groups=())


def _cadence(
    declared: Declarations,
    called: str,
    when: When | None,
    depends_on: str | None,
    *,
    dormant: bool,
) -> When | None:
    """Return the cadence of a manifest without a parent; report one with both or neither."""
    if depends_on is None:
        if dormant:
            declared.problems.append(f"{called} is dormant and has no parent: set depends_on=")
        return read_when(when, called, declared.problems)
    if when is not None:
        declared.problems.append(
            f"{called} has a cadence and a parent: leave out when= or depends_on="
        )
    return None


def _declarations(job: str) -> Declarations:
    declared = Declarations(owner=API_OWNER)
    declared.add_job(RemoteJob(name=job, group=job))
    return declared
