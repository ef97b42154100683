"""Changes of whole applications: another name, their end, and back to their code."""

from msgspec import Struct

from headway_contract.control import Text
from headway_contract.work import Name


class RenameAppRequest(Struct, frozen=True, kw_only=True):
    """Call an application `to` from now on, with all that it owns.

    With a `key` it is done once, and answered alike for a week; so are the requests below.
    """

    app: Name
    to: Name
    actor: Text = ""
    key: Text | None = None


class RetireAppRequest(Struct, frozen=True, kw_only=True):
    """End an application: delete its manifests with all runs and dead letters, retire its jobs."""

    app: Name
    actor: Text = ""
    key: Text | None = None


class GiveBackAppRequest(Struct, frozen=True, kw_only=True):
    """Let the code of an application declare it again, after files took it over."""

    app: Name
    actor: Text = ""
    key: Text | None = None
