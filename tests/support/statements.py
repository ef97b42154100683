"""Statements that services send to PostgreSQL, and the rows that they write."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from asyncpg.pool import Pool

_WRITTEN = """
SELECT relname, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_del AS deleted,
       n_tup_hot_upd AS updated_without_indexes
FROM pg_stat_xact_user_tables
WHERE schemaname = 'scheduler'
"""


@contextmanager
def sent_statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the statements that all pools of this process send, each a round trip."""
    sent: list[str] = []
    take = Pool._acquire

    def log(record: Any) -> None:
        if record.query != _WRITTEN:
            sent.append(record.query)

    async def logged(self: Pool, timeout: float | None) -> Any:
        connection = await take(self, timeout)
        connection.add_query_logger(log)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "_acquire", logged)
        yield sent


@asynccontextmanager
async def written_rows(
    connection: Any, *, hot: tuple[str, ...] = ()
) -> AsyncIterator[dict[str, list[int]]]:
    """Count the rows that a part of a transaction inserts, updates and deletes, by table.

    For the tables in `hot`, count also the updates that write no index.
    """
    written: dict[str, list[int]] = {}
    # The session may not have reported the counts of earlier transactions yet.
    before = await _read_counts(connection)
    yield written
    for table, counts in (await _read_counts(connection)).items():
        earlier = before.get(table, (0, 0, 0, 0))
        changes = [now - then for now, then in zip(counts, earlier, strict=True)]
        if table not in hot:
            changes.pop()
        if any(changes):
            written[table] = changes


async def _read_counts(connection: Any) -> dict[str, tuple[int, ...]]:
    return {row["relname"]: tuple(row)[1:] for row in await connection.fetch(_WRITTEN)}
