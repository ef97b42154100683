"""Questions and requests about groups, jobs, workers and the services themselves."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headway_contract.fields import KeyedRequest, MaxActive, Name, Priority, Rate, Request, Text
from headway_contract.manifests import FieldOwner

# Fields of a group that an operator can give back to the code.
GroupField = Literal["max_active", "priority", "enabled", "rate"]


class GroupStatus(Struct, frozen=True, kw_only=True):
    """The settings of a group."""

    name: str
    max_active: int | None = None
    priority: int = 0
    enabled: bool = True
    manifests: int = 0
    touched: list[str] = []
    rate: Rate | None = None
    owners: list[FieldOwner] = []


class GroupOccupancy(Struct, frozen=True, kw_only=True):
    """Slots in use (`active`), runs, waiting work (by reason) and open dead letters of a group."""

    group: str
    max_active: int | None = None
    enabled: bool = True
    active: int = 0
    pending: int = 0
    in_progress: int = 0
    waiting: dict[str, int] = {}
    dead_letters: int = 0


class OccupancyAnswer(Struct, frozen=True, kw_only=True):
    """The groups by name, and the global limit."""

    max_active: int
    groups: list[GroupOccupancy] = []


class ChangeGroupRequest(Request, frozen=True, kw_only=True):
    """Change the limits of a group; `null` removes `max_active` or `rate`."""

    group: Name
    max_active: MaxActive | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    rate: Rate | UnsetType | None = UNSET
    give_back: list[GroupField] = field(default_factory=list)


class ChangeJobRequest(Request, frozen=True, kw_only=True):
    """Change the limits of a job; `null` removes a limit, `give_back` returns it to the code."""

    job: Name
    max_active: MaxActive | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    give_back: list[Literal["max_active", "rate"]] = field(default_factory=list)


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """A worker process by its heartbeats; it is `alive` until the orphan timeout."""

    worker: str
    host: str = ""
    sdk: str = ""
    sdk_version: str = ""
    code_version: str = ""
    jobs: list[str] = []
    slots: int = 0
    alive: bool
    draining: bool = False
    first_heard_at: datetime
    last_heard_at: datetime
    runs: list[UUID] = []


class DrainRequest(KeyedRequest, frozen=True, kw_only=True):
    """Let the current processes of these workers finish their runs and exit."""

    workers: Annotated[list[Text], Meta(min_length=1, max_length=500)]


class DrainResult(Struct, frozen=True, kw_only=True):
    """The result for one worker: `asked`, `already_draining` or `unknown`."""

    worker: str
    result: str
    last_heard_at: datetime | None = None
    text: str = ""


class DrainAnswer(Struct, frozen=True, kw_only=True):
    """The results, in the order of the request."""

    results: list[DrainResult] = []


class SettingsQuestion(Struct, frozen=True, kw_only=True):
    """List the settings of a process of the service, with their sources."""


class SettingStatus(Struct, frozen=True, kw_only=True):
    """A setting and its source (`default`, `environment`, `file`, `flag`); secrets are masked."""

    variable: str
    value: str
    source: str | None = None
    description: str = ""


class SettingsAnswer(Struct, frozen=True, kw_only=True):
    """Every setting of the process that answers."""

    process: str
    settings: list[SettingStatus] = []


class NotifyTestRequest(Request, frozen=True, kw_only=True):
    """Send one test notification to the webhook now, and return the result."""


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """One event of history as people read it, accepted or refused."""

    number: int
    id: str
    type: str
    subject: str
    source: str
    occurred_at: datetime
    recorded_at: datetime
    accepted: bool
    refusal: str | None
    work: UUID | None
    run: UUID | None
    lease: UUID | None
    data: Any
