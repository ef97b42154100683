"""What becomes of dead letters that somebody sees to.

A letter is resolved once. A retry begins the next round of its work in the slot that the work
had; while other work of the manifest is in that slot, it waits for it, so that two rounds, or
two pieces of work where one is allowed, never run at once.
"""

from collections.abc import Iterable, Sequence
from typing import Literal
from uuid import UUID

from msgspec import Struct

# A manifest's slot; work without a manifest has none, and is in nobody's way.
Slot = tuple[UUID, int]

Refusal = Literal[
    "already_retried", "already_acknowledged", "already_asked", "pruned", "job_retired"
]


class Letter(Struct, frozen=True, kw_only=True):
    """A dead letter, locked and read, and who is in the slot of its work."""

    id: UUID
    work: UUID
    round: int
    state: str
    asked: bool = False
    pruned: bool = False
    job_retired: bool = False
    slot: Slot | None = None
    taken_by: UUID | None = None


class Retried(Struct, frozen=True, kw_only=True):
    """Its work is queued again, in this round."""

    round: int


class Waits(Struct, frozen=True, kw_only=True):
    """Its work will be queued again once this other work has left the slot."""

    taken_by: UUID


class Acknowledged(Struct, frozen=True):
    """It is put away."""


class Refused(Struct, frozen=True, kw_only=True):
    """It stays as it is."""

    why: Refusal


RetryVerdict = Retried | Waits | Refused
LetterVerdict = RetryVerdict | Acknowledged


def retry(letters: Iterable[Letter]) -> list[tuple[Letter, RetryVerdict]]:
    """Judge a retry of letters, in their order: the first of a slot gets it."""
    given: dict[Slot, UUID] = {}
    verdicts: list[tuple[Letter, RetryVerdict]] = []
    for letter in letters:
        verdict = _retry(letter, given)
        if isinstance(verdict, Retried) and letter.slot is not None:
            given[letter.slot] = letter.work
        verdicts.append((letter, verdict))
    return verdicts


def _retry(letter: Letter, given: dict[Slot, UUID]) -> RetryVerdict:
    refusal = _refusal(letter)
    if refusal is not None:
        return refusal
    # No worker serves a retired job: the round would wait for ever.
    if letter.job_retired:
        return Refused(why="job_retired")
    if letter.asked:
        return Refused(why="already_asked")
    taken_by = letter.taken_by
    if taken_by is None and letter.slot is not None:
        taken_by = given.get(letter.slot)
    return Retried(round=letter.round + 1) if taken_by is None else Waits(taken_by=taken_by)


def acknowledge(letters: Sequence[Letter]) -> list[tuple[Letter, Acknowledged | Refused]]:
    """Judge an acknowledgement; a retry that was asked for and still waits is withdrawn by it."""
    return [(letter, _refusal(letter) or Acknowledged()) for letter in letters]


def _refusal(letter: Letter) -> Refused | None:
    # Nothing of a manifest that is gone may run, and its letters go with it.
    if letter.pruned:
        return Refused(why="pruned")
    match letter.state:
        case "awaiting":
            return None
        case "retried":
            return Refused(why="already_retried")
    return Refused(why="already_acknowledged")
