"""Pages of answers: where one ends and the next begins."""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_errors import Invalid

# What a page begins after: a time, and an id among those of one time.
Place = tuple[datetime | None, UUID | None]


def read_place(after: str) -> Place:
    """Where a page begins, as an answer has named it; the first page begins nowhere."""
    if not after:
        return None, None
    at, _, name = after.partition("/")
    try:
        moment, identity = datetime.fromisoformat(at), UUID(name)
    except ValueError as error:
        raise Invalid(
            f"after={after!r} is no place in a list: send the 'last' of the answer before"
        ) from error
    if moment.tzinfo is None:
        raise Invalid(f"after={after!r} has a time without an offset")
    return moment, identity


def place_of(at: datetime, identity: UUID) -> str:
    """The place of one entry, for whoever asks for what comes after it."""
    return f"{at.isoformat()}/{identity}"


def cut(rows: list[Any], limit: int, at: str, identity: str = "id") -> tuple[list[Any], str, bool]:
    """A page out of rows of which one more was read: the page, its last place, and if there
    is more.
    """
    page = rows[:limit]
    last = place_of(page[-1][at], page[-1][identity]) if page else ""
    return page, last, len(rows) > limit


def aware(at: datetime | None, what: str) -> datetime | None:
    """A time with its offset; without one it could mean anything."""
    if at is not None and at.tzinfo is None:
        raise Invalid(f"{what}={at.isoformat()} has no offset: write {at.isoformat()}Z")
    return at
