"""Pausing manifests for a while, and what they make good when that ends."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from headway_contract.control import Text
from headway_contract.scheduling import ManifestId
from headway_contract.work import Name


class Chosen(Struct, frozen=True, kw_only=True):
    """Which manifests are meant: those named, those of a group, those with all of some labels, or
    all. One of these must be said, and only one.
    """

    manifests: Annotated[list[ManifestId], Meta(max_length=500)] = []
    group: Name | None = None
    labels: Annotated[dict[Text, Text], Meta(max_length=30)] = {}
    all: bool = False


class PauseRequest(Chosen, frozen=True, kw_only=True):
    """Let nothing of some manifests begin: from now on, until a time or until they are resumed.

    Pausing what is paused changes its end and its reason. A `dry_run` changes nothing. With a `key`
    it is done once, and answered alike for a week.
    """

    until: datetime | None = None
    reason: Text = ""
    dry_run: bool = False
    actor: Text = ""
    key: Text | None = None


class PausedManifest(Struct, frozen=True, kw_only=True):
    """A manifest that is paused, and its first due time without a decision."""

    manifest: str
    paused_at: datetime
    paused_until: datetime | None = None
    reason: str = ""
    next_due_at: datetime | None = None


class PauseAnswer(Struct, frozen=True, kw_only=True):
    """What is paused now, or would be: as many as an answer has room for, and how many in all."""

    text: str
    count: int = 0
    manifests: list[PausedManifest] = []
    dry_run: bool = False


class ResumeRequest(Chosen, frozen=True, kw_only=True):
    """End the pause of some manifests; what came due in it is decided by their misfire policies.

    A `dry_run` changes nothing, and tells what that would be. With a `key` it is done once, and
    answered alike for a week.
    """

    dry_run: bool = False
    actor: Text = ""
    key: Text | None = None


class ResumedManifest(Struct, frozen=True, kw_only=True):
    """What a manifest makes good when its pause ends.

    Of the due times that `passed` (`passed_or_more` if they were not counted to the end) those in
    `fires`, the latest of them, and `more_fires` before them fire by its misfire `policy`, at once
    or after work that is under way. So much of what was decided before is `owed` and runs now.
    `follows` says that its parent had a success meanwhile, which it follows. `text` says it all.
    """

    manifest: str
    paused_at: datetime
    reason: str = ""
    policy: str = ""
    passed: int = 0
    passed_or_more: bool = False
    fires: list[datetime] = []
    more_fires: int = 0
    owed: int = 0
    follows: bool = False
    text: str = ""


class ResumeAnswer(Struct, frozen=True, kw_only=True):
    """What was resumed, or would be: those that make something good first, as many as an answer
    has room for; how many in all, and how many fires that makes.
    """

    text: str
    count: int = 0
    fires: int = 0
    manifests: list[ResumedManifest] = []
    dry_run: bool = False
