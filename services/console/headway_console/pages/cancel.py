"""Ending works and runs early, from whichever page."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.dispatching import CancelAnswer, CancelRequest
from headway_contract.http import InvalidRequest
from litestar import Request, Response

from headway_console.pages.flash import Kind, go_to
from headway_console.pages.form_fields import back, field_of

_MOST_AT_ONCE = 500


async def cancel(request: Request[Any, Any, Any], ids: Sequence[UUID], *, to: str) -> Response[Any]:
    """End works or runs early, and tell what became of each."""
    if not ids:
        raise InvalidRequest("nothing is checked: check what to cancel")
    if len(ids) > _MOST_AT_ONCE:
        raise InvalidRequest(f"check at most {_MOST_AT_ONCE} at once")
    asking = CancelRequest(
        ids=list(ids), reason=await field_of(request, "reason"), actor=request.user.name
    )
    answer = await request.app.state.control.ask(subjects.CANCEL_REQUEST, asking, CancelAnswer)
    kind: Kind = "good" if _any_ended(answer) else "bad"
    return go_to(request, await back(request, to), text=in_words(answer), kind=kind)


def in_words(answer: CancelAnswer) -> str:
    """What became of a cancel; of a single one what the service says of it."""
    if len(answer.results) == 1 and answer.results[0].text:
        return answer.results[0].text
    counts = Counter(one.result for one in answer.results)
    return ", ".join(f"{many} {_WORDS.get(kind, kind)}" for kind, many in counts.most_common())


_WORDS = {
    "settled": "will never start",
    "asked_to_stop": "asked to stop",
    "asked": "will be asked to stop",
    "already_settled": "had ended already",
    "unknown": "not known any more",
}


def _any_ended(answer: CancelAnswer) -> bool:
    return any(one.result in ("settled", "asked_to_stop", "asked") for one in answer.results)
