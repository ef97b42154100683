"""Read-only connections."""

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
