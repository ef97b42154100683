"""How a client reaches the services: one question, one answer.

The client's methods know no transport; whatever can `ask` may take the place of NATS.
"""

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from msgspec import Struct

Answer = TypeVar("Answer", bound=Struct)

# Most questions are answered in milliseconds; definitions of thousands of manifests are not.
USUAL_SECONDS = 5.0
PATIENT_SECONDS = 30.0


class Control(Protocol):
    """Asks services, by the subject on which they answer."""

    async def ask(
        self,
        subject: str,
        question: Struct,
        answer: type[Answer],
        *,
        timeout: float = USUAL_SECONDS,
    ) -> Answer:
        """The answer to a question; raises `RequestFailed` if there is none."""
        ...


class Asking(ABC):
    """What the parts of a client have in common: who asks, and the way to the services."""

    _actor: str

    @property
    @abstractmethod
    def _control(self) -> Control:
        """The way to the services."""
