"""The append-only event store, and the fold of what it holds.

Every event that changes a table is written down once, in the transaction that changes it, and so
is every event of a worker that was refused, with the reason. Rows are never changed. The tables
that people look at follow from the accepted ones: `folding` says how, by code of its own that
shares nothing with the statements that write the tables, and `comparing` tells where the two
differ.

The unit of the fold is one piece of work with its runs and its dead letters. Nothing in it goes
by the order in which events were written down, nor by how often each is read: what came later is
known by what the events say. A snapshot stands for all that was written down of its work before.
"""

from headway_history.compare import Difference, compare
from headway_history.folding import Folded, fold
from headway_history.retained import Kept
from headway_history.rows import LetterRow, RunRow, WorkRow
from headway_history.store import History, Record

__all__ = [
    "Difference",
    "Folded",
    "History",
    "Kept",
    "LetterRow",
    "Record",
    "RunRow",
    "WorkRow",
    "compare",
    "fold",
]
