"""Dead letters: retries, acknowledgements, fingerprints of failures and edits of inputs.

A letter is resolved once. A retry begins the next round of its work in the slot of the work. While
other work of the manifest is in that slot, the retry waits, so that two rounds never run at once.

Two failures of a job are equal if their kinds are, and their messages after masking everything that
differs from run to run. Stacks are ignored, because every release moves their lines.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.settled import InputChange
from msgspec import Struct

# A manifest's slot; work without a manifest has none.
Slot = tuple[UUID, int]

Refusal = Literal[
    "already_retried", "already_acknowledged", "already_asked", "pruned", "job_retired"
]


class Letter(Struct, frozen=True, kw_only=True):
    """A locked dead letter, and the work in its slot."""

    id: UUID
    work: UUID
    round: int
    state: str
    retry_requested: bool = False
    pruned: bool = False
    job_retired: bool = False
    slot: Slot | None = None
    taken_by: UUID | None = None


class RetryNow(Struct, frozen=True, kw_only=True):
    """Its work is queued now, in this round."""

    round: int


class RetryWaits(Struct, frozen=True, kw_only=True):
    """Its work is queued when this other work has left the slot."""

    taken_by: UUID


class Acknowledged(Struct, frozen=True):
    """It is acknowledged."""


class Refused(Struct, frozen=True, kw_only=True):
    """It stays unchanged, for this reason."""

    why: Refusal


RetryVerdict = RetryNow | RetryWaits | Refused
LetterVerdict = RetryVerdict | Acknowledged


def judge_retries(letters: Iterable[Letter]) -> list[tuple[Letter, RetryVerdict]]:
    """Judge retries in order: the first letter of a slot gets the slot."""
    given: dict[Slot, UUID] = {}
    verdicts: list[tuple[Letter, RetryVerdict]] = []
    for letter in letters:
        taken_by = letter.taken_by or (given.get(letter.slot) if letter.slot else None)
        verdict: RetryVerdict | None = _refusal(letter)
        # No worker serves a retired job: the round would never run.
        if verdict is None and letter.job_retired:
            verdict = Refused(why="job_retired")
        elif verdict is None and letter.retry_requested:
            verdict = Refused(why="already_asked")
        elif verdict is None and taken_by is not None:
            verdict = RetryWaits(taken_by=taken_by)
        elif verdict is None:
            verdict = RetryNow(round=letter.round + 1)
            if letter.slot is not None:
                given[letter.slot] = letter.work
        verdicts.append((letter, verdict))
    return verdicts


def judge_acknowledgements(
    letters: Sequence[Letter],
) -> list[tuple[Letter, Acknowledged | Refused]]:
    """Judge acknowledgements, which also withdraw waiting retries."""
    return [(letter, _refusal(letter) or Acknowledged()) for letter in letters]


def _refusal(letter: Letter) -> Refused | None:
    # A pruned manifest runs nothing, and its letters are deleted with it.
    if letter.pruned:
        return Refused(why="pruned")
    if letter.state == "awaiting":
        return None
    return Refused(why="already_retried" if letter.state == "retried" else "already_acknowledged")


# Longer messages repeat themselves or list their input.
_READ = 2000
_LENGTH = 12

_MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"|`[^`\n]*`"), "<text>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"(?<!\w)(?:[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}[\\/]?"), "<path>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    # Letters and digits in one word: an id or a digest.
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{6,}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{12,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"[-+]?\d+(?:[.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def mask_message(message: str) -> str:
    """Mask everything in a message that differs between equal failures."""
    text = message[:_READ]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return text.strip()


def fingerprint(job: str, failure: Failure) -> str:
    """Return a hash that is equal for equal failures of a job."""
    parts = [job, failure.kind, mask_message(failure.message)]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:_LENGTH]


def format_fingerprint(print_: str, code_version: str) -> str:
    """Format a fingerprint, with the version of the failed code if known."""
    return f"{print_}@{code_version}" if code_version else print_


def parse_fingerprint(given: str) -> tuple[str, str | None]:
    """Parse a fingerprint; without a version it means all versions."""
    print_, at, code_version = given.strip().partition("@")
    return print_, code_version if at else None


def input_changes(was: Any, now: Any, path: str = "") -> list[InputChange]:
    """Return every change of an edited input; lists of different lengths change as a whole."""
    changes = []
    if isinstance(was, dict) and isinstance(now, dict):
        removed = sorted(was.keys() - now.keys())
        changes += [InputChange(path=_below(path, key), was=was[key]) for key in removed]
        for key, value in now.items():
            if key in was:
                changes += input_changes(was[key], value, _below(path, key))
            else:
                changes.append(InputChange(path=_below(path, key), now=value))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            changes += input_changes(before, after, _below(path, index))
    elif was != now or isinstance(was, bool) is not isinstance(now, bool):
        changes.append(InputChange(path=path, was=was, now=now))
    return changes


def _below(path: str, step: object) -> str:
    return f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"
