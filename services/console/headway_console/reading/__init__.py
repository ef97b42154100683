"""What the console lists, read from both schemas with a role that can only read.

One module for each subject. A function takes a connection, what is asked for and, where it
answers with a list, a cursor and a limit; it makes a fixed number of round trips, however long the
list is. Lists are in a fixed order, by a time and an id (or by a name), and go on behind the last
entry of the page before, never at an offset, so that they are neither slower nor torn further on.

What an index answers is answered in full. What none does (text in an input, a worker's name, a
rare type of event) is looked for among so many of the newest entries, and the page says how far it
has looked (`searched_until`) and where to go on (`next`): a search that finds nothing is then a
short one and an honest one, and not one that reads a million runs.

Nothing here knows of HTTP, nor of who asks.
"""

from headway_console.reading.connections import connect_reader
from headway_console.reading.pages import BadCursor, Page

__all__ = ["BadCursor", "Page", "connect_reader"]
