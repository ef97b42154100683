"""Pages of lists, their cursors, and rows as structs."""

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec
from headway_contract.fields import Text
from headway_errors import Invalid
from msgspec import Meta, Struct

Item = TypeVar("Item")
Kind = TypeVar("Kind", bound=Struct)

SearchText = Annotated[str, Meta(min_length=1, max_length=200)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=50)]


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

    def cursor(self) -> str:
        """Write the place as an opaque text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class Listing(Struct, frozen=True):
    """A list in the order of two columns, a time and an id, or of `id` alone without `at`."""

    name: str
    at: str | None
    id: str = "id"
    kind: type = UUID

    def time_and_id(self, cursor: str | None) -> tuple[datetime | None, Any]:
        """Return the place of a cursor; `None` twice for the first page. Raises `Invalid`."""
        place = self._read(cursor)
        if place is None:
            return None, None
        try:
            return msgspec.convert(place.at, datetime), msgspec.convert(place.id, self.kind)
        except msgspec.ValidationError as error:
            raise self.unknown_entry(cursor) from error

    def last_name(self, cursor: str | None) -> str:
        """Return the name of a cursor; empty for the first page. Raises `Invalid`."""
        place = self._read(cursor)
        return "" if place is None else str(place.id)

    def unknown_entry(self, cursor: str | None) -> Invalid:
        """Make the error for a cursor that does not fit the order of the list."""
        return Invalid(f"{cursor!r} names no entry of {self.name}: start without one")

    def page(self, rows: Sequence[Any], limit: int, item: Callable[[Any], Item]) -> Page[Item]:
        """Make a page of rows; a row more than `limit` shows that there is a next page."""
        shown = rows[:limit]
        following = self._cursor(shown[-1]) if len(rows) > limit else None
        return Page(items=[item(row) for row in shown], next=following)

    def searched(self, page: Page[Item], reached: Any) -> Page[Item]:
        """Continue a page that a bounded search did not fill after `reached`, its last row."""
        if page.next is not None or reached is None:
            return page
        return Page(items=page.items, next=self._cursor(reached), searched_until=reached[self.at])

    def _read(self, cursor: str | None) -> Place | None:
        if not cursor:
            return None
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            data = base64.b64decode(padded, altchars=b"-_", validate=True)
            place = msgspec.json.decode(data, type=Place)
        except (ValueError, msgspec.DecodeError) as error:
            raise Invalid(f"invalid cursor {cursor!r}: send 'next' of a page unchanged") from error
        if place.of != self.name or (place.at is not None and place.at.tzinfo is None):
            raise Invalid(
                f"{cursor!r} is a cursor of another list than {self.name}: start without one"
            )
        return place

    def _cursor(self, row: Any) -> str:
        entry = row[self.id] if isinstance(row[self.id], int) else str(row[self.id])
        return Place(self.name, row[self.at] if self.at else None, entry).cursor()


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
