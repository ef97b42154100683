"""Draws a trace as an indented text with outcomes and links.

scheduler decide
  dispatcher admit
    worker run 1 ValueError
      dispatcher project
        dispatcher settle retry
  dispatcher admit ⇠ dispatcher settle retry
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

# Attributes of a span to show, in this order.
_SHOWN = ("claim", "attempt", "outcome", "failure")
# The part of a subject to show: the rest is a lease, which differs each time.
_TOKENS = 3


class Drawn(NamedTuple):
    """A span; ids are hexadecimal, attributes have no prefix, times are in nanoseconds."""

    service: str
    name: str
    id: str
    trace: str
    parent: str
    began: int
    ended: int
    links: Sequence[tuple[str, str]]
    attributes: Mapping[str, str | int]

    @property
    def label(self) -> str:
        """The service, the name and the shown attributes."""
        parts = [str(self.attributes[key]) for key in _SHOWN if self.attributes.get(key)]
        if self.name == "publish":
            parts.append(".".join(str(self.attributes["subject"]).split(".")[:_TOKENS]))
        return " ".join([self.service.removeprefix("headway-"), self.name, *parts])


Order = Callable[[Drawn], int | str]
by_begin = attrgetter("began")


def draw(
    top: Drawn,
    spans: Iterable[Drawn],
    *,
    order: Order = by_begin,
    text: Callable[[Drawn], str] = attrgetter("label"),
) -> str:
    """Return a span and its descendants, one a line."""
    found = list(spans)
    by_id = {span.id: span for span in found}
    below: dict[str, list[Drawn]] = {}
    for span in sorted(found, key=order):
        if span.trace == top.trace:
            below.setdefault(span.parent, []).append(span)

    def lines(span: Drawn, depth: int) -> Iterable[str]:
        links = [by_id[linked].label for _, linked in span.links if linked in by_id]
        yield f"{'  ' * depth}{' ⇠ '.join([text(span), *links])}\n"
        for child in below.get(span.id, []):
            yield from lines(child, depth + 1)

    return "".join(lines(top, 0))


def roots(spans: Iterable[Drawn]) -> list[Drawn]:
    """Return the spans whose parent is not among them, in the order of their start."""
    found = list(spans)
    known = {span.id for span in found}
    return sorted((span for span in found if span.parent not in known), key=by_begin)
