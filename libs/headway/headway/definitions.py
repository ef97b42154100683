"""What an app declares, as plain data: this is what the scheduler stores.

Definitions know no function and no module, so they can be compared, hashed and sent.
"""

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from headway_contract.work import Priority, RetryPolicy
from headway_decisions.cadence import Cadence
from msgspec import Meta, Struct

# Half of the age that events are kept for: the claim of a longer run could expire under it.
LONGEST_TIMEOUT_SECONDS = 3.5 * 86_400


class InvalidDefinitions(Exception):
    """One or more definitions cannot be used; every problem is listed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class GroupDefinition(Struct, frozen=True, kw_only=True):
    """Limits of a group. None leaves the limit to the operator."""

    name: str
    max_active: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    priority: Priority | None = None


class JobDefinition(Struct, frozen=True, kw_only=True):
    """A job: a name that workers serve, and what its input looks like."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None


class ManifestDefinition(Struct, frozen=True, kw_only=True):
    """What runs and when."""

    external_id: str
    job: str
    group: str
    cadence: Cadence
    tz: str = "UTC"
    input: Any = None
    priority: Priority = 0
    retry: RetryPolicy = RetryPolicy()
    timeout_seconds: Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)] = 1200.0
    cancel_grace_seconds: Annotated[float, Meta(ge=0, le=3600)] = 30.0
    on_lost_contact: Literal["stop", "continue"] = "stop"

    def fingerprint(self) -> str:
        """Equal for equal definitions: an unchanged one writes nothing."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


class Definitions(Struct, frozen=True, kw_only=True):
    """All that one app declares."""

    owner: str
    groups: tuple[GroupDefinition, ...] = ()
    jobs: tuple[JobDefinition, ...] = ()
    manifests: tuple[ManifestDefinition, ...] = ()
