"""Names of the messages on core NATS, in the AsyncAPI document and of the files of schemas."""

import re

from headway_contract.manifests import ManyChanged
from headway_contract.registry import REQUESTS
from headway_contract.work_queue import WorkQuestion
from headway_contract.worker_protocol import CancelPush, Progress
from msgspec import Struct

# Their messages are named after the subject, the others after the struct.
_NAMED_BY_SUBJECT = (WorkQuestion, ManyChanged)


def request_names(subject: str) -> tuple[str, str]:
    """Return the names of a request and its answer: `stop_canary.request`, `changed.answer`."""
    request, answer = REQUESTS[subject]
    return _name(subject, request, "request"), _name(subject, answer, "answer")


def _name(subject: str, struct: type[Struct], kind: str) -> str:
    words = re.findall("[A-Z][a-z]+", struct.__name__)
    if words[-1] in ("Request", "Question", "Answer", "Reply"):
        kind = words.pop().lower()
    verb = subject.rpartition(".")[2]
    return f"{verb if struct in _NAMED_BY_SUBJECT else '_'.join(words).lower()}.{kind}"


CONTROL: dict[str, type[Struct]] = {
    "cancel.push": CancelPush,
    "progress": Progress,
}
for _subject, _structs in REQUESTS.items():
    CONTROL.update(zip(request_names(_subject), _structs, strict=True))
