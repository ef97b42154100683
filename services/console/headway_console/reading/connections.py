"""Connections that can only read."""

from headway_postgres_kit import Database

READER = "headway_reader"

# Long enough for any list here, short enough that a slow one does not keep others waiting.
_ANSWER_SECONDS = 6.0

_SETTINGS = {
    "default_transaction_read_only": "on",
    # Plan by what is asked for: one plan for all questions could use no index.
    "plan_cache_mode": "force_custom_plan",
    # What is looked at is mostly in memory, so an index is worth its jumps.
    "random_page_cost": "1.1",
    # Compiling costs more than any of our statements takes.
    "jit": "off",
}


async def connect_reader(
    url: str, *, name: str = "headway-console", role: str = READER, max_connections: int = 10
) -> Database:
    """A pool that reads what people may see, and can change nothing.

    The user of `url` must be allowed to take on the role; the empty role leaves it as it is.
    """
    settings = {**_SETTINGS, "role": role} if role else _SETTINGS
    return await Database.connect(
        url,
        name=name,
        max_connections=max_connections,
        answer_seconds=_ANSWER_SECONDS,
        settings=settings,
    )
