"""Timeouts of requests, and the type of their answers."""

from typing import TypeVar

from msgspec import Struct

Answer = TypeVar("Answer", bound=Struct)

# Most requests take milliseconds; definitions of thousands of manifests do not.
USUAL_SECONDS = 5.0
PATIENT_SECONDS = 30.0
