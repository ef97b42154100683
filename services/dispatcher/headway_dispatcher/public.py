"""The names of the dispatcher that other packages may use, besides `wiring`."""

from headway_dispatcher.history.pages import export as export
from headway_dispatcher.history.rebuild import Rebuilt as Rebuilt
from headway_dispatcher.history.rebuild import ServicesRun as ServicesRun
from headway_dispatcher.history.rebuild import rebuild as rebuild
from headway_dispatcher.history.verify import MOST_LISTED as MOST_LISTED
from headway_dispatcher.history.verify import Verified as Verified
from headway_dispatcher.history.verify import verify as verify
from headway_dispatcher.metrics import MEASURES as MEASURES
from headway_dispatcher.provisioning import Inspected as Inspected
from headway_dispatcher.provisioning import NotProvisioned as NotProvisioned
from headway_dispatcher.provisioning import inspect_provisioned as inspect_provisioned
from headway_dispatcher.provisioning import provision_by as provision_by
from headway_dispatcher.settings import DispatcherSettings as DispatcherSettings
from headway_dispatcher.store import MIGRATIONS as MIGRATIONS
from headway_dispatcher.store import retention as retention
