"""The read model: lists and single things from both schemas, read with a read-only role.

One module for each subject. A function takes a connection and filters and makes a fixed number of
round trips. A list has a fixed order, by a time and an id or by a name, and continues after the
last entry of the page before, so that the thousandth page costs as much as the first.

Filters with an index search everything. The others (text in an input, a worker's name, a rare type
of event) search a bounded number of the newest entries; the page says how far (`searched_until`)
and `next` continues.

Nothing here knows about HTTP or about the person who reads.
"""

from headway_postgres_kit import Database

READER = "headway_reader"

# Long enough for every list, short enough that a slow one does not block others.
_ANSWER_SECONDS = 6.0

_SETTINGS = {
    "default_transaction_read_only": "on",
    # A generic plan for all filters could use no index.
    "plan_cache_mode": "force_custom_plan",
    # The data is mostly in memory, so random access is cheap.
    "random_page_cost": "1.1",
    # Compiling takes longer than any of these statements.
    "jit": "off",
}


async def connect_reader(url: str, *, role: str = READER) -> Database:
    """Open a read-only pool in a role; an empty role keeps the user of `url`."""
    return await Database.connect(
        url,
        name="headway-console",
        max_connections=10,
        answer_seconds=_ANSWER_SECONDS,
        settings={**_SETTINGS, "role": role} if role else _SETTINGS,
    )
