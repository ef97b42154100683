"""Chains and batches: manifests that follow others, and many manifests of one job.

    app.manifest(extract).then(transform).then(load).include("report-load", job=report)

`include` adds a dependent of the root, `then_include` one of the cursor, which is the manifest
declared last. A batch has many manifests, so there is no cursor after it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

from headway_contract.fitting import show
from headway_decisions.timing.cadence import Manual

from headway.define.calendar import did_you_mean
from headway.define.declarations import (
    OF_FIRE_TIMES,
    BatchDraft,
    Configure,
    Declarations,
    DependentTerms,
    Draft,
    Item,
    Items,
    JobGiven,
    Terms,
)
from headway.define.definitions import Batch
from headway.define.keywords import check_keywords
from headway.define.when import read_when


def add_batch(declared: Declarations, batch: BatchDraft) -> None:
    """Declare a batch and a manifest for each of its items."""
    declared.add_batch(Batch(name=batch.name, prune=batch.prune), batch.where)
    drafts = [_draft(batch, item, declared) for item in _items(batch, declared.problems)]
    declared.drafts += drafts
    if not any(draft.when is batch.when for draft in drafts):
        # Check the job and the cadence of the batch even while no item uses them.
        declared.unused.append(batch)


def _items(batch: BatchDraft, problems: list[str]) -> Iterator[Item]:
    """Yield the items that can be read, and report the others."""
    called = batch.called
    if isinstance(batch.items, str | bytes) or not isinstance(batch.items, Iterable):
        problems.append(
            f"{called}: items {show(batch.items)} is not valid: give a mapping from id to input, "
            "or a list of items"
        )
        return
    pairs = batch.items.items() if isinstance(batch.items, Mapping) else None
    for position, entry in enumerate(batch.items if pairs is None else pairs, start=1):
        item = _item(batch, entry, is_pair=pairs is not None)
        if isinstance(item, Item):
            if isinstance(item.id, str | int) and not isinstance(item.id, bool):
                yield item
                continue
            item = f"has the id {show(item.id)}, which is neither text nor a whole number"
        problems.append(f"{called}: its item {position} {item}")


def _item(batch: BatchDraft, entry: Any, *, is_pair: bool) -> Item | str:
    """Return an item, or the problem that prevents it."""
    if batch.key is not None and not is_pair:
        return Item(batch.key(entry), entry)
    if isinstance(entry, Item):
        return entry
    if isinstance(entry, tuple) and len(entry) == 2:
        return Item(*entry)
    return (
        "is neither an Item nor an (id, input) pair: give key=, a function that returns the id of "
        "an item"
    )


def _draft(batch: BatchDraft, item: Item, declared: Declarations) -> Draft:
    problems = declared.problems
    external_id = f"{batch.name}-{item.id}"
    called = f"manifest {external_id!r}"
    own = _own_terms(batch, item, called, problems)
    shared = {name: value for name, value in batch.terms.items() if value is not None}
    when = read_when(own.pop("when"), called, problems) if "when" in own else batch.when
    own_parent = item.depends_on
    parent = batch.depends_on if own_parent is None else declared.manifest_of(own_parent)
    own_manual = when is not batch.when and when is not None and isinstance(when.cadence, Manual)
    if parent is not None or own_manual:
        # The batch sets these terms for its items that have fire times.
        shared = {name: value for name, value in shared.items() if name not in OF_FIRE_TIMES}
    return Draft(
        external_id,
        batch.job,
        when=when,
        input=item.input,
        terms={"group": batch.name, **shared, **own},
        depends_on=parent,
        dormant=batch.dormant,
        batch=batch.name,
        where=batch.places.get(str(item.id), batch.where),
    )


def _own_terms(batch: BatchDraft, item: Item, called: str, problems: list[str]) -> dict[str, Any]:
    """Return the terms that `configure` gives an item."""
    if batch.configure is None:
        return {}
    given: Any = batch.configure(item)
    if not isinstance(given, Mapping):
        problems.append(f"{called}: configure gives {show(given)}: give a mapping of terms")
        return {}
    known = {"when", *Terms.__optional_keys__}
    for name in [name for name in given if name not in known]:
        hint = did_you_mean(name, Terms.__optional_keys__)
        problems.append(f"{called}: configure gives {name!r}, unknown here{hint}")
    return {name: value for name, value in given.items() if name in known}


class Chain:
    """Declares dependents, relative to a root and to a cursor that moves along."""

    def __init__(self, declared: Declarations, root: str | None, *, after: str = "") -> None:
        self._declared = declared
        self.root = root
        self.cursor = root
        # The batch that removed the cursor, for messages.
        self._after = after

    @check_keywords
    def include(
        self,
        dependent: JobGiven,
        *,
        job: JobGiven | None = None,
        input: Any = None,  # noqa: A002
        dormant: bool = False,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a job after each success of the root; a dormant one when the root's run wakes it.

        The dependent is an id with a `job=`, or only a job, whose name is then the id.
        """
        rest = (input, terms, self.root, dormant)
        return self._add_dependent(self.include, dependent, job, *rest)

    @check_keywords
    def then_include(
        self,
        dependent: JobGiven,
        *,
        job: JobGiven | None = None,
        input: Any = None,  # noqa: A002
        dormant: bool = False,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a job after each success of the manifest that was declared last."""
        rest = (input, terms, self.cursor, dormant)
        return self._add_dependent(self.then_include, dependent, job, *rest)

    then = then_include

    @check_keywords
    def include_many(
        self,
        name: str,
        *,
        job: JobGiven,
        items: Items,
        key: Any = None,
        prune: bool = True,
        dormant: bool = False,
        configure: Configure | None = None,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a batch, each item after its `depends_on` or, without one, after the root."""
        batch = BatchDraft(
            name=name, job=job, items=items, key=key, prune=prune, depends_on=self.root,
            dormant=dormant, configure=configure, terms=terms,
        )  # fmt: skip
        return self._add_batch(batch)

    @check_keywords
    def then_include_many(
        self,
        name: str,
        *,
        job: JobGiven,
        items: Items,
        key: Any = None,
        prune: bool = True,
        dormant: bool = False,
        configure: Configure | None = None,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a batch, each item after its `depends_on`, which is required."""
        batch = BatchDraft(
            name=name, job=job, items=items, key=key, prune=prune,
            dormant=dormant, configure=configure, terms=terms,
        )  # fmt: skip
        return self._add_batch(batch)

    def _add_dependent(
        self, method: Callable[..., object], dependent: Any, job: JobGiven | None, *rest: Any
    ) -> "Chain":
        if job is None:
            dependent, job = self._declared.name_of(dependent), dependent
        draft = Draft(dependent, job, None, *rest)
        if draft.depends_on is not None:
            self._declared.drafts.append(draft)
        else:
            problem = "follows no manifest: name one in app.manifest(...)"
            if self._after:
                problem = (
                    f"cannot follow the batch {self._after!r}, which has many manifests: start "
                    f"from one, as in app.manifest('{self._after}-<item>').then(...)"
                )
            self._declared.problems.append(f"{draft.called}: {method.__name__} {problem}")
        self.cursor = draft.external_id
        return self

    def _add_batch(self, batch: BatchDraft) -> "Chain":
        add_batch(self._declared, batch)
        self.cursor = None
        self._after = batch.name
        return self
