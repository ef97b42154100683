"""Whether a source may declare an application: code at its start, or files that a person applies.

An application belongs to the source that declared it last. Generations order the declarations of
one source only.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from headway_decisions.wording import utc

Source = Literal["code", "files"]


class Application(Struct, frozen=True, kw_only=True):
    """A stored application: its latest declaration."""

    name: str
    source: Source
    generation: int
    declared_at: datetime
    declared_by: str


class MayDeclare(Struct, frozen=True, kw_only=True):
    """The declaration is allowed; `remarks` are for its author."""

    taken_over: bool = False
    remarks: tuple[str, ...] = ()


class Stale(Struct, frozen=True, kw_only=True):
    """The same source has already declared a newer generation."""

    reason: str


class NotTheOwner(Struct, frozen=True, kw_only=True):
    """The application belongs to the other source."""

    reason: str


Verdict = MayDeclare | Stale | NotTheOwner


def judge_declaration(
    known: Application | None, *, source: Source, generation: int, take_over: bool = False
) -> Verdict:
    """Decide whether a source may declare an application, and say why not."""
    if known is None:
        return MayDeclare()
    if known.source != source:
        return _judge_other_source(known, generation, take_over=take_over)
    if generation < known.generation:
        return Stale(
            reason=f"generation {known.generation} of {known.name!r} has already declared its "
            f"manifests: the older generation {generation} changes nothing"
        )
    remark = (
        f"the generation of {known.name!r} rises from {known.generation} to {generation}: "
        "definitions of a lower one change nothing from now on"
    )
    rises = source == "files" and generation > known.generation
    return MayDeclare(remarks=(remark,) if rises else ())


def _judge_other_source(known: Application, generation: int, *, take_over: bool) -> Verdict:
    last = f"generation {known.generation}, {utc(known.declared_at)}"
    give_back = f"'headway apps give-back {known.name}'"
    if known.source == "files":
        return NotTheOwner(
            reason=f"application {known.name!r} belongs to applied files ({last}, "
            f"{known.declared_by}): this start declares nothing of it and runs with the stored "
            f"definitions; let the code declare it again with {give_back}, or remove it from the "
            "code"
        )
    if take_over:
        remark = (
            f"application {known.name!r} is taken over from its code ({last}) as generation "
            f"{generation}: its code declares nothing from now on, until {give_back}"
        )
        return MayDeclare(taken_over=True, remarks=(remark,))
    return NotTheOwner(
        reason=f"application {known.name!r} is declared by its code at every start (last {last}): "
        "change the code, or let an admin apply these definitions with --take-over "
        "(take_over in a request), after which its code declares nothing any more"
    )
