"""Requests about definitions and applications: plan, apply, rename, retire, give back."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from headway_contract.fields import KeyedRequest, Name
from headway_contract.manifests import FireTime

Days = Annotated[int, Meta(ge=0, le=3660)]
# The policy for manifests that their application no longer declares.
PrunePolicy = Literal["delete", "disable", "keep"]


class ApplyRequest(KeyedRequest, frozen=True, kw_only=True):
    """Store definitions, all or none; or only return what would change (a plan).

    `definitions` is their JSON, compressed with zlib. `days` is the horizon of a plan. Definitions
    of an application that its code declares are refused, unless they `take_over`: then its code
    declares nothing from now on.
    """

    definitions: bytes
    prune: PrunePolicy | None = None
    days: Days = 7
    take_over: bool = False


class FireChange(Struct, frozen=True, kw_only=True):
    """Fire times of one manifest that appear and vanish.

    `appear` and `vanish` list the first of them; `appearing`, `vanishing` and `unchanged` count
    all. Times after `compared_until` were not compared, because there are too many.
    """

    manifest: str
    zone: str
    appear: list[FireTime] = []
    vanish: list[FireTime] = []
    appearing: int = 0
    vanishing: int = 0
    unchanged: int = 0
    compared_until: datetime | None = None


class FiresLeftOut(Struct, frozen=True, kw_only=True):
    """Counts of the manifests that a plan does not list.

    Fire times of `changing` ones change: `appearing` and `vanishing` count them. `not_compared`
    ones were too many to compare.
    """

    changing: int = 0
    appearing: int = 0
    vanishing: int = 0
    not_compared: int = 0


class ApplyAnswer(Struct, frozen=True, kw_only=True):
    """The changes that were made, or would be made. `stale`: a newer generation is declared.

    In a plan, `refused` is the reason why applying would be refused. `left_out` counts the
    manifests that did not fit into `fires`.
    """

    owner: str
    created: list[str] = []
    changed: list[str] = []
    unchanged: int = 0
    pruned: list[str] = []
    disabled: list[str] = []
    fires: list[FireChange] = []
    warnings: list[str] = []
    stale: bool = False
    refused: str = ""
    left_out: FiresLeftOut | None = None


class AppRequest(KeyedRequest, frozen=True, kw_only=True):
    """A request about an application."""

    app: Name


class RenameAppRequest(AppRequest, frozen=True, kw_only=True):
    """Rename an application, with everything that it owns, `to` another name."""

    to: Name


class RetireAppRequest(AppRequest, frozen=True, kw_only=True):
    """Delete an application's manifests with all runs and dead letters, and retire its jobs."""


class GiveBackAppRequest(AppRequest, frozen=True, kw_only=True):
    """Let the code of an application declare it again, after files took it over."""
