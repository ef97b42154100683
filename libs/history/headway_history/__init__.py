"""The append-only event store.

Every event that was received is written down once, with whether it was accepted and, if
not, why. Rows are never changed; the tables that people look at are projections of the
accepted ones, and `replay` gives those back to whoever wants to prove it.
"""

from headway_history.store import History, Record

__all__ = ["History", "Record"]
