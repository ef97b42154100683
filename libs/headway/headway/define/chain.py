"""A chain of manifests: the root that was scheduled, and what follows its success.

    chain = app.schedule("extract", job=extract, when=daily("02:00"))
    chain.then_include("transform", job=transform).then_include("load", job=load)

`include` hangs a dependent on the root, `then_include` on the cursor, which is the manifest
declared last. After a batch there is no single manifest to go on from, so there is no cursor.
"""

from typing import Any, Unpack, cast

from headway.define.batches import BatchDraft, Configure, Items, add_batch
from headway.define.declarations import Declarations, DependentTerms, Draft, JobGiven, Terms
from headway.define.when import refuse_unknown


class Chain:
    """Declares dependents, relative to a root and to a cursor that moves along."""

    def __init__(
        self, declared: Declarations, *, root: str | None, cursor: str | None, after: str = ""
    ) -> None:
        self._declared = declared
        self.root = root
        self.cursor = cursor
        # The batch that took the cursor away, for the words of a problem.
        self._after = after

    def include(
        self,
        external_id: str,
        *,
        job: JobGiven,
        input: Any = None,  # noqa: A002
        dormant: bool = False,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a job after each success of the root, or if dormant when its run says so."""
        refuse_unknown("include", terms, DependentTerms)
        return self._hang(self.root, "include", external_id, job, input, dormant, terms)

    def then_include(
        self,
        external_id: str,
        *,
        job: JobGiven,
        input: Any = None,  # noqa: A002
        dormant: bool = False,
        **terms: Unpack[DependentTerms],
    ) -> "Chain":
        """Run a job after each success of the manifest that was declared last."""
        refuse_unknown("then_include", terms, DependentTerms)
        return self._hang(self.cursor, "then_include", external_id, job, input, dormant, terms)

    then = then_include

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
        """Run a batch: each item after its own `depends_on`, or else after the root."""
        refuse_unknown("include_many", terms, DependentTerms)
        batch = BatchDraft(
            name=name, job=job, items=items, key=key, prune=prune, parent=self.root,
            dormant=dormant, configure=configure, terms=cast("Terms", terms),
        )  # fmt: skip
        return self._hang_many(batch, "or call include_many after a schedule")

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
        """Run a batch: each item after its own `depends_on`, which it must have."""
        refuse_unknown("then_include_many", terms, DependentTerms)
        batch = BatchDraft(
            name=name, job=job, items=items, key=key, prune=prune, parent=None,
            dormant=dormant, configure=configure, terms=cast("Terms", terms),
        )  # fmt: skip
        return self._hang_many(batch, "or use include_many to hang them on the root")

    def _hang(
        self,
        parent: str | None,
        method: str,
        external_id: str,
        job: JobGiven,
        given: Any,
        dormant: bool,
        terms: DependentTerms,
    ) -> "Chain":
        if parent is None and not self._after:
            self._declared.problems.append(
                f"manifest {external_id!r}: {method} follows no manifest: name one in "
                "app.manifest(...)"
            )
        elif parent is None:
            self._declared.problems.append(
                f"manifest {external_id!r}: {method} cannot follow the batch {self._after!r}, "
                f"which has many manifests: start from one, as in "
                f"app.manifest('{self._after}-<item>').then(...)"
            )
        else:
            self._declared.drafts.append(
                Draft(
                    external_id=external_id,
                    job=job,
                    input=given,
                    terms=cast("Terms", terms),
                    depends_on=parent,
                    dormant=dormant,
                )
            )
        self.cursor = external_id
        return self

    def _hang_many(self, batch: BatchDraft, remedy: str) -> "Chain":
        for draft in add_batch(self._declared, batch):
            if draft.depends_on is None:
                self._declared.problems.append(
                    f"{draft.called}: nothing says after which manifest it runs: give its Item "
                    f"a depends_on, {remedy}"
                )
        self.cursor = None
        self._after = batch.name
        return self
