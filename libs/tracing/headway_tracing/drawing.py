"""A trace as text: who did what under what, how it went, and what it is linked to.

scheduler decide
  dispatcher admit
    worker run 1 ValueError
      dispatcher project
        dispatcher settle retry
  dispatcher admit ⇠ dispatcher settle retry
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

# Attributes of a span that tell how it went, in the order in which they are told.
_TOLD = ("claim", "attempt", "outcome", "failure")
# Of a subject, so much: the rest is a lease, which is another each time.
_TOKENS = 3


class Drawn(NamedTuple):
    """One span; ids are hexadecimal, attributes without their prefix, times in nanoseconds."""

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
    def called(self) -> str:
        """Who did what, and how that went."""
        told = [str(self.attributes[key]) for key in _TOLD if self.attributes.get(key)]
        if self.name == "publish":
            told.append(".".join(str(self.attributes["subject"]).split(".")[:_TOKENS]))
        return " ".join([self.service.removeprefix("headway-"), self.name, *told])


Order = Callable[[Drawn], int | str]
Tell = Callable[[Drawn], str]


def by_begin(span: Drawn) -> int:
    """In the order in which spans began."""
    return span.began


def draw(
    top: Drawn,
    spans: Iterable[Drawn],
    *,
    order: Order = by_begin,
    tell: Tell = lambda span: span.called,
) -> str:
    """A span and all below it, each in a line of its own."""
    found = list(spans)
    by_id = {span.id: span for span in found}
    below: dict[str, list[Drawn]] = {}
    for span in sorted(found, key=order):
        if span.trace == top.trace:
            below.setdefault(span.parent, []).append(span)

    def lines(span: Drawn, depth: int) -> Iterable[str]:
        linked = [by_id[one].called for _, one in span.links if one in by_id]
        yield f"{'  ' * depth}{' ⇠ '.join([tell(span), *linked])}\n"
        for one in below.get(span.id, []):
            yield from lines(one, depth + 1)

    return "".join(lines(top, 0))


def roots(spans: Iterable[Drawn]) -> list[Drawn]:
    """The spans whose parent is not among them, in the order in which they began."""
    found = list(spans)
    known = {span.id for span in found}
    return sorted((span for span in found if span.parent not in known), key=by_begin)
