"""Results of requests about dead letters, with a sentence for people."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from headway_contract.dead_letters import LetterResult
from headway_decisions.retries.dead_letters import (
    Acknowledged,
    Letter,
    LetterVerdict,
    Refused,
    RetryNow,
    RetryWaits,
)
from headway_decisions.wording import utc


def results(
    ids: Sequence[UUID],
    verdicts: Sequence[tuple[Letter, LetterVerdict]],
    rows: dict[UUID, Any],
    *,
    edited: Collection[UUID] = (),
) -> list[LetterResult]:
    """Return one result for each named letter, in that order; some run with an edited input."""
    found = {
        letter: LetterResult(
            dead_letter=letter,
            result="unknown",
            text=f"there is no dead letter {letter}: see 'headway dead-letters list --state all'",
        )
        for letter in ids
    }
    found |= {letter.id: _result(letter, verdict, rows, edited) for letter, verdict in verdicts}
    return list(found.values())


def _result(
    letter: Letter, verdict: LetterVerdict, rows: dict[UUID, Any], edited: Collection[UUID]
) -> LetterResult:
    match verdict:
        case RetryNow():
            word, text = "retried", f"runs again, in round {verdict.round}"
        case RetryWaits():
            word = "waits"
            text = f"runs again once work {verdict.taken_by} of its manifest has ended"
        case Acknowledged():
            word, text = "acknowledged", "acknowledged"
        case Refused():
            word, text = verdict.why, _refusal(verdict, rows.get(letter.id))
    if letter.id in edited and isinstance(verdict, RetryNow | RetryWaits):
        text += _edited(rows[letter.id])
    return LetterResult(
        dead_letter=letter.id,
        result=word,
        work=letter.work,
        round=verdict.round if isinstance(verdict, RetryNow) else letter.round,
        text=f"dead letter {letter.id}: {text}",
    )


def _edited(row: Any) -> str:
    if row["manifest"] is None:
        return ", with the edited input"
    return (
        f", with the edited input; the input of manifest {row['manifest']!r} itself is unchanged, "
        "and its next fires use that: change it where the manifest is declared"
    )


def _refusal(refused: Refused, row: Any) -> str:
    match refused.why:
        case "pruned":
            return (
                "its manifest was deleted, so its work cannot run: declare the manifest again to "
                "run its job"
            )
        case "job_retired":
            return (
                f"job {row['job']!r} is retired, because no application declares it: declare the "
                "job again, or acknowledge the dead letter"
            )
        case "already_asked":
            by, at = row["retry_requested_by"], row["retry_requested_at"]
            return f"{by} requested a retry at {utc(at)}, and it waits for its slot"
        case "already_retried":
            return f"{row['actor']} retried it at {utc(row['resolved_at'])}: see its work"
    return f"{row['actor']} acknowledged it at {utc(row['resolved_at'])}"
