"""The names of the dispatcher that other packages may use, besides `wiring`."""

from headway_dispatcher.history.export import HistoryEvent, export
from headway_dispatcher.history.rebuild import Rebuilt, ServicesRun, rebuild
from headway_dispatcher.history.verify import MOST_LISTED, Verified, verify
from headway_dispatcher.metrics import MEASURES
from headway_dispatcher.provisioning import (
    Inspected,
    NotProvisioned,
    inspect_provisioned,
    provision_by,
)
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import MIGRATIONS, retention

__all__ = [
    "MEASURES",
    "MIGRATIONS",
    "MOST_LISTED",
    "DispatcherSettings",
    "HistoryEvent",
    "Inspected",
    "NotProvisioned",
    "Rebuilt",
    "ServicesRun",
    "Verified",
    "export",
    "inspect_provisioned",
    "provision_by",
    "rebuild",
    "retention",
    "verify",
]
