"""Cancel work and runs, from several pages."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.work_queue import CancelAnswer, CancelRequest
from headway_errors import Invalid
from litestar import Request, Response

from headway_console.pages.flash import Kind, back_of, go_to
from headway_console.pages.form_fields import field_of
from headway_console.services import ask

_MAX_AT_ONCE = 500


async def cancel(request: Request[Any, Any, Any], ids: Sequence[UUID], *, to: str) -> Response[Any]:
    """Cancel work or runs, and show the results."""
    if not ids:
        raise Invalid("nothing is checked: check what to cancel")
    if len(ids) > _MAX_AT_ONCE:
        raise Invalid(f"check at most {_MAX_AT_ONCE} at once")
    question = CancelRequest(
        ids=list(ids), reason=await field_of(request, "reason"), actor=request.user.name
    )
    answer = await ask(request, subjects.CANCEL_REQUEST, question, CancelAnswer)
    kind: Kind = "good" if _any_ended(answer) else "bad"
    return go_to(request, await back_of(request, to), text=summary(answer), kind=kind)


def summary(answer: CancelAnswer) -> str:
    """Summarise the results of a cancel."""
    if len(answer.results) == 1 and answer.results[0].text:
        return answer.results[0].text
    counts = Counter(result.result for result in answer.results)
    return ", ".join(f"{many} {_PHRASES.get(kind, kind)}" for kind, many in counts.most_common())


_PHRASES = {
    "settled": "cancelled before start",
    "asked_to_stop": "asked to stop",
    "asked": "will be asked to stop",
    "already_settled": "already settled",
    "unknown": "unknown",
}


def _any_ended(answer: CancelAnswer) -> bool:
    return any(result.result in ("settled", "asked_to_stop", "asked") for result in answer.results)
