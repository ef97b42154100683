"""Many manifests of one job: a batch, and the items that it is made of."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from headway.calendar import did_you_mean
from headway.declarations import Declarations, Draft, JobGiven, Terms
from headway.definitions import Batch
from headway.when import When, read_when

Configure = Callable[["Item"], Mapping[str, Any]]


class Item(Struct, frozen=True):
    """One manifest of a batch; `depends_on` is the full id of its parent."""

    id: str | int
    input: Any = None
    depends_on: str | None = None


Items = Mapping[Any, Any] | Iterable[Any]


class BatchDraft(Struct, frozen=True, kw_only=True):
    """A batch as it was stated. Items without a parent of their own get `parent`."""

    name: str
    job: JobGiven | None
    items: Items
    key: Callable[[Any], str | int] | None = None
    when: When | None = None
    parent: str | None = None
    dormant: bool = False
    prune: bool = True
    configure: Configure | None = None
    terms: Terms
    where: str = ""
    # Where each item stands in a file, by its id.
    places: dict[str, str] = {}


def add_batch(declared: Declarations, batch: BatchDraft) -> list[Draft]:
    """Declare a batch and a manifest for each of its items, which are looked at once."""
    declared.add_batch(Batch(name=batch.name, prune=batch.prune), batch.where)
    drafts = [_draft(batch, item, declared.problems) for item in _items(batch, declared.problems)]
    declared.drafts += drafts
    return drafts


def _items(batch: BatchDraft, problems: list[str]) -> Iterator[Item]:
    if isinstance(batch.items, Mapping):
        yield from (Item(key, value) for key, value in batch.items.items())
        return
    for position, one in enumerate(batch.items, start=1):
        if batch.key is not None:
            yield Item(batch.key(one), one)
        elif isinstance(one, Item):
            yield one
        elif isinstance(one, tuple) and len(one) == 2:
            yield Item(*one)
        else:
            problems.append(
                f"{batch.where}batch {batch.name!r}: its item {position} is neither an Item nor "
                "an (id, input) pair: give key=, a function that tells the id of an item"
            )


def _draft(batch: BatchDraft, item: Item, problems: list[str]) -> Draft:
    external_id = f"{batch.name}-{item.id}"
    own = dict(batch.configure(item)) if batch.configure else {}
    when = batch.when
    if "when" in own:
        when = read_when(own.pop("when"), f"manifest {external_id!r}", problems)
    for name in own.keys() - Terms.__optional_keys__:
        hint = did_you_mean(name, Terms.__optional_keys__)
        problems.append(f"manifest {external_id!r}: configure gives {name!r}, unknown here{hint}")
        own.pop(name)
    return Draft(
        external_id=external_id,
        job=batch.job,
        when=when,
        input=item.input,
        terms=cast("Terms", {"group": batch.name, **_stated(batch.terms), **own}),
        depends_on=item.depends_on or batch.parent,
        dormant=batch.dormant,
        batch=batch.name,
        where=batch.places.get(str(item.id), batch.where),
    )


def _stated(terms: Terms) -> dict[str, Any]:
    return {name: value for name, value in terms.items() if value is not None}
