"""The failures of requests, and the base of the parts of a client."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

Answer = TypeVar("Answer", bound=Struct)

# Most questions are answered in milliseconds; definitions of thousands of manifests are not.
USUAL_SECONDS = 5.0
PATIENT_SECONDS = 30.0


class Asking(ABC):
    """A part of the client: its methods send requests over one connection."""

    @property
    @abstractmethod
    def _console(self) -> "HttpControl":
        """The connection to the console."""
