"""Pages of lists: where one ends and the next begins."""

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

Item = TypeVar("Item")


class BadCursor(ValueError):
    """A cursor that none of our pages has named."""


class Page(Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of a list.

    `next` is where the list goes on, if it does. `searched_until` says that there may be more
    than `items` has, further back: the search ended there, and goes on with `next`.
    """

    items: list[Item] = []
    next: str | None = None
    searched_until: datetime | None = None


class Place(Struct, frozen=True, array_like=True):
    """Where a list goes on: behind this entry. What it is of tells it from other lists' places."""

    of: str
    at: datetime | None
    id: str | int


_decoder = msgspec.json.Decoder(Place)


def place_of(of: str, at: datetime | None, identity: Any) -> Place:
    """The place of an entry; ids are text here."""
    return Place(of, at, identity if isinstance(identity, int) else str(identity))


def write_cursor(place: Place) -> str:
    """A place as clients carry it; they need not know what is in it."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(of: str, cursor: str | None) -> Place | None:
    """The place that a cursor names; none for the first page."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        place = _decoder.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, msgspec.DecodeError) as error:
        raise BadCursor(f"{cursor!r} is no cursor: send the 'next' of a page as it came") from error
    if place.of != of or (place.at is not None and place.at.tzinfo is None):
        raise BadCursor(f"{cursor!r} is a cursor of another list than {of}: begin without one")
    return place


def time_and_id(of: str, cursor: str | None) -> tuple[datetime | None, UUID | None]:
    """The place of a list of things with UUIDs, as a query takes it."""
    place = read_cursor(of, cursor)
    if place is None:
        return None, None
    try:
        named = UUID(str(place.id))
    except ValueError as error:
        raise _not_of(of, cursor) from error
    if place.at is None:
        raise _not_of(of, cursor)
    return place.at, named


def time_and_number(of: str, cursor: str | None) -> tuple[datetime | None, int | None]:
    """The place of a list of numbered things, as a query takes it."""
    place = read_cursor(of, cursor)
    if place is None:
        return None, None
    if not isinstance(place.id, int) or place.at is None:
        raise _not_of(of, cursor)
    return place.at, place.id


def name_of(of: str, cursor: str | None) -> str:
    """The place of a list in the order of names, as a query takes it."""
    place = read_cursor(of, cursor)
    return "" if place is None else str(place.id)


def _not_of(of: str, cursor: str | None) -> BadCursor:
    return BadCursor(f"{cursor!r} names no entry of {of}: begin without one")


def page_of(
    of: str,
    rows: Sequence[Any],
    limit: int,
    item: Callable[[Any], Item],
    at: str | None,
    identity: str = "id",
) -> Page[Item]:
    """A page out of rows, of which one more was read to know if there are more.

    `at` and `identity` are the columns that the list is ordered by; without a time by one alone.
    """
    shown = rows[:limit]
    following = None
    if len(rows) > limit:
        last = shown[-1]
        following = write_cursor(place_of(of, None if at is None else last[at], last[identity]))
    return Page(items=[item(row) for row in shown], next=following)


def searched(page: Page[Item], of: str, reached: Any, at: str, identity: str = "id") -> Page[Item]:
    """A page that a bounded search has not filled; `reached` is the last row that it looked at."""
    if page.next is not None or reached is None:
        return page
    return Page(
        items=page.items,
        next=write_cursor(place_of(of, reached[at], reached[identity])),
        searched_until=reached[at],
    )


def like(text: str | None) -> str | None:
    """A pattern that finds a text anywhere, whatever characters it has."""
    if not text:
        return None
    # NUL characters are never stored, so nothing has one.
    escaped = text.replace("\x00", "").replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"
