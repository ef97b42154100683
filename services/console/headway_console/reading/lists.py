"""Pages of lists, their cursors, and rows as structs."""

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from headway_contract.fields import Text
from headway_errors import Invalid
from msgspec import Meta, Struct

Item = TypeVar("Item")
Key = TypeVar("Key")
Kind = TypeVar("Kind", bound=Struct)

SearchText = Annotated[str, Meta(min_length=1, max_length=200)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=50)]


class BadCursor(Invalid):
    """A cursor that no page of this list returned."""


class Page(Struct, Generic[Item], frozen=True, kw_only=True):
    """One page of a list.

    `next` is the cursor of the next page, if there is one. `searched_until` is set if the search
    was bounded: there may be older matches, and `next` continues the search.
    """

    items: list[Item] = []
    next: str | None = None
    searched_until: datetime | None = None


class Place(Struct, frozen=True, array_like=True):
    """The last entry of a page; `of` names its list."""

    of: str
    at: datetime | None
    id: str | int


def write_cursor(place: Place) -> str:
    """Write a place as an opaque text."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(of: str, cursor: str | None) -> Place | None:
    """Return the place of a cursor; `None` for the first page. Raises `BadCursor`."""
    if not cursor:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        place = msgspec.json.decode(data, type=Place)
    except (ValueError, msgspec.DecodeError) as error:
        raise BadCursor(f"invalid cursor {cursor!r}: send 'next' of a page unchanged") from error
    if place.of != of or (place.at is not None and place.at.tzinfo is None):
        raise BadCursor(f"{cursor!r} is a cursor of another list than {of}: start without one")
    return place


def time_and_id(of: str, cursor: str | None, kind: type[Key]) -> tuple[datetime | None, Key | None]:
    """Return the place in a list that is ordered by time and id; raises `BadCursor`."""
    place = read_cursor(of, cursor)
    if place is None:
        return None, None
    expected: type[tuple[datetime, Key]] = tuple[datetime, kind]  # type: ignore[valid-type]
    try:
        return msgspec.convert((place.at, place.id), expected)
    except msgspec.ValidationError as error:
        raise unknown_entry(of, cursor) from error


def last_name(of: str, cursor: str | None) -> str:
    """Return the place in a list that is ordered by name."""
    place = read_cursor(of, cursor)
    return "" if place is None else str(place.id)


def unknown_entry(of: str, cursor: str | None) -> BadCursor:
    """Make the error for a cursor that does not fit the order of its list."""
    return BadCursor(f"{cursor!r} names no entry of {of}: start without one")


def page_of(
    of: str,
    rows: Sequence[Any],
    limit: int,
    item: Callable[[Any], Item],
    at: str | None,
    identity: str = "id",
) -> Page[Item]:
    """Make a page of rows; a row more than `limit` shows that there is a next page.

    `at` and `identity` are the columns of the order; without `at` it is `identity` alone.
    """
    shown = rows[:limit]
    following = _cursor(of, shown[-1], at, identity) if len(rows) > limit else None
    return Page(items=[item(row) for row in shown], next=following)


def searched(page: Page[Item], of: str, reached: Any, at: str, identity: str = "id") -> Page[Item]:
    """Continue a page that a bounded search did not fill after `reached`, its last row."""
    if page.next is not None or reached is None:
        return page
    following = _cursor(of, reached, at, identity)
    return Page(items=page.items, next=following, searched_until=reached[at])


def _cursor(of: str, row: Any, at: str | None, identity: str) -> str:
    entry = row[identity] if isinstance(row[identity], int) else str(row[identity])
    return write_cursor(Place(of, None if at is None else row[at], entry))


def read_row(kind: type[Kind], row: Any, **values: Any) -> Kind:
    """Make a struct of a row and of further values.

    A field comes from the column of its name, or else of its name with `_id` or `_name`.
    """
    for field in kind.__struct_fields__:
        for column in (field, f"{field}_id", f"{field}_name"):
            if field not in values and column in row:
                values[field] = row[column]
    return kind(**values)


def escaped(text: str) -> str:
    """Escape a text for a pattern of SQL; PostgreSQL stores no NUL characters."""
    plain = text.replace("\x00", "").replace("\\", "\\\\")
    return plain.replace("%", r"\%").replace("_", r"\_")


def like(text: str | None) -> str | None:
    """Return a pattern that finds a text anywhere."""
    return f"%{escaped(text)}%" if text else None
