"""The append-only event store, and the fold of its events.

Every event that changes a table is appended in the transaction that changes it, and so are refused
events of workers. Rows are never changed. The tables follow from the accepted events: `folding`
computes the rows with code that shares nothing with the statements that write the tables, and
`compare` reports where the two differ. A snapshot replaces all earlier events of its work.
"""

from headway_history.events import StoredEvent as StoredEvent
from headway_history.folding import fold as fold
from headway_history.rows import Difference as Difference
from headway_history.rows import LetterRow as LetterRow
from headway_history.rows import RunRow as RunRow
from headway_history.rows import WorkRow as WorkRow
from headway_history.rows import WorkRows as WorkRows
from headway_history.rows import compare as compare
from headway_history.store import History as History
from headway_history.store import Record as Record
