"""The append-only event store, and the fold of its events.

Every event that changes a table is appended in the transaction that changes it, and so are refused
events of workers. Rows are never changed. The tables follow from the accepted events: `folding`
computes the rows with code that shares nothing with the statements that write the tables, and
`compare` reports where the two differ. A snapshot replaces all earlier events of its work.
"""

from headway_history.events import StoredEvent
from headway_history.folding import fold
from headway_history.rows import Difference, LetterRow, RunRow, WorkRow, WorkRows, compare
from headway_history.store import History, Record

__all__ = [
    "Difference",
    "History",
    "LetterRow",
    "Record",
    "RunRow",
    "StoredEvent",
    "WorkRow",
    "WorkRows",
    "compare",
    "fold",
]
