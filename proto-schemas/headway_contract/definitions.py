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
    """Store definitions, all or none; as a plan, only return the changes of the next `days`.

    `definitions` is JSON, compressed with zlib. Definitions from files for an application that its
    code declares are refused, unless they `take_over`: its code then declares nothing any more.
    """

    definitions: bytes
    prune: PrunePolicy | None = None
    days: Days = 7
    take_over: bool = False


class FireChange(Struct, frozen=True, kw_only=True):
    """Fire times of one manifest that appear and vanish: the first of them, and counts of all."""

    manifest: str
    zone: str
    appear: list[FireTime] = []
    vanish: list[FireTime] = []
    appearing: int = 0
    vanishing: int = 0
    unchanged: int = 0
    compared_until: datetime | None = None  # there are too many later times to compare


class FiresLeftOut(Struct, frozen=True, kw_only=True):
    """Counts of the manifests and fire times that did not fit into a plan or were not compared."""

    changing: int = 0
    appearing: int = 0
    vanishing: int = 0
    not_compared: int = 0


class ApplyAnswer(Struct, frozen=True, kw_only=True):
    """The changes that were made, or that a plan would make; each manifest is listed once.

    `moved` manifests keep their history and their operators' settings, and have other fire times;
    other fields may have changed too.
    """

    owner: str
    created: list[str] = []
    changed: list[str] = []
    moved: list[str] = []
    unchanged: int = 0
    pruned: list[str] = []
    disabled: list[str] = []
    fires: list[FireChange] = []
    warnings: list[str] = []
    stale: bool = False  # a newer generation is declared
    refused: str = ""  # why applying the plan would be refused
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
