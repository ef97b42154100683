"""What people who operate the system ask: many manifests at once, workers that drain, settings."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from headway_contract.control import Text
from headway_contract.pausing import Chosen


class ChangeManyRequest(Chosen, frozen=True, kw_only=True):
    """Enable, disable or run many manifests, each by itself: what one refuses others still do.

    Those of a group, with labels or all are done a page at a time, in the order of their ids:
    the next page begins `after` the last manifest of the page before. A `dry_run` changes nothing
    and names them. The same `key` does it only once; with other parameters than the first time it
    is refused.
    """

    action: Literal["enable", "disable", "run"]
    after: Text = ""
    dry_run: bool = False
    key: Text | None = None
    actor: Text = ""


class ManifestChanged(Struct, frozen=True, kw_only=True):
    """What became of one manifest; `text` says it, also why it was refused."""

    manifest: str
    done: bool
    text: str = ""


class ManyChanged(Struct, frozen=True, kw_only=True):
    """What became of each, in the order in which they were named or of their ids.

    With `more`, the next page begins after `last`.
    """

    results: list[ManifestChanged] = []
    last: str = ""
    more: bool = False


class NotifyTestRequest(Struct, frozen=True, kw_only=True):
    """Send a test notification to the webhook now, once, and tell how that went."""

    actor: Text = ""


class DrainRequest(Struct, frozen=True, kw_only=True):
    """Let worker processes take no more orders, finish what they run, and end.

    It is meant for the processes that go by these names now: who starts later under one of them
    is not asked to drain. The same `key` asks only once.
    """

    workers: Annotated[list[Text], Meta(min_length=1, max_length=500)]
    key: Text | None = None
    actor: Text = ""


class DrainResult(Struct, frozen=True, kw_only=True):
    """What became of one worker: `asked`, `already_draining` or `unknown`; `text` says it."""

    worker: str
    result: str
    last_heard_at: datetime | None = None
    text: str = ""


class DrainAnswer(Struct, frozen=True, kw_only=True):
    """What became of each, in the order in which they were named."""

    results: list[DrainResult] = []


class SettingsQuestion(Struct, frozen=True, kw_only=True):
    """What holds in a service's process?"""


class SettingStatus(Struct, frozen=True, kw_only=True):
    """A setting as a user would write it, and who says so: `default`, `environment`, `file`,
    `flag`. Secrets are masked.
    """

    variable: str
    value: str
    source: str | None = None
    description: str = ""


class SettingsAnswer(Struct, frozen=True, kw_only=True):
    """Every setting of the process that answers, which is one of as many as there are."""

    process: str
    settings: list[SettingStatus] = []
