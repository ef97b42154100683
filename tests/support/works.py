"""Work as the scheduler queues it."""

from typing import Any

from headway_contract.work import WorkQueued, WorkTerms


def queued(**fields: Any) -> WorkQueued:
    """Return the event of new work; fields that only its terms have go into these."""
    own = set(WorkQueued.__struct_fields__)
    terms = {
        name: fields.pop(name)
        for name in WorkTerms.__struct_fields__
        if name in fields.keys() - own
    }
    return WorkQueued(terms=WorkTerms(**terms), **fields)
