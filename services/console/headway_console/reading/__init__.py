"""The read model: lists and single things from both schemas, read with a read-only role.

One module for each subject. A function takes a connection and filters and makes a fixed number of
round trips. A list has a fixed order, by a time and an id or by a name, and continues after the
last entry of the page before, so that the thousandth page costs as much as the first.

Filters with an index search everything. The others (text in an input, a worker's name, a rare type
of event) search a bounded number of the newest entries; the page says how far (`searched_until`)
and `next` continues.

Nothing here knows about HTTP or about the person who reads.
"""

from headway_console.reading.connections import connect_reader
from headway_console.reading.lists import BadCursor, Page

__all__ = ["BadCursor", "Page", "connect_reader"]
