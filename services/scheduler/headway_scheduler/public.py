"""The names of the scheduler that other packages may use, besides `wiring`."""

from headway_scheduler.metrics import MEASURES
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.store import MIGRATIONS, enqueue_role_is_missing

__all__ = ["MEASURES", "MIGRATIONS", "SchedulerSettings", "enqueue_role_is_missing"]
