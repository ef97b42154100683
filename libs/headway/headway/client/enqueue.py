"""Enqueue work inside your own transaction: the work exists if, and only if, that commits.

    async with connection.transaction():
        await connection.execute("INSERT INTO orders ...")
        await headway.enqueue(connection, "send-invoice", {"order": 7}, key="invoice-7")

It calls the SQL function `headway.enqueue` over a connection of asyncpg or psycopg, or over a
connection or session of SQLAlchemy. None of these libraries is imported. Await the result if the
connection is asynchronous.
"""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import Any
from uuid import UUID

import msgspec
from headway_tracing import traceparent


def enqueue(
    connection: Any,
    job: str,
    input: Any = None,  # noqa: A002
    *,
    group: str | None = None,
    priority: int | None = None,
    delay: float | timedelta | None = None,
    not_before: datetime | None = None,
    start_by: datetime | None = None,
    key: str | None = None,
) -> Any:
    """Enqueue work of a declared job in the connection's transaction; return the work's id.

    `delay` is in seconds. The same `key` of a job returns the same work; with other parameters it
    is refused. The result is awaitable if the connection is asynchronous.
    """
    if isinstance(delay, int | float):
        delay = timedelta(seconds=delay)
    for name, moment in (("not_before", not_before), ("start_by", start_by)):
        if moment is not None and moment.tzinfo is None:
            raise ValueError(f"{name}={moment!r} has no zone: give it one, such as datetime.UTC")
    given = {
        '"job" => CAST({} AS text)': job,
        # As text, because an application may configure how its driver encodes JSON.
        '"input" => CAST(CAST({} AS text) AS jsonb)': (
            None if input is None else msgspec.json.encode(input).decode()
        ),
        '"group" => CAST({} AS text)': group,
        '"priority" => CAST({} AS integer)': priority,
        '"delay" => CAST({} AS interval)': delay,
        '"not_before" => CAST({} AS timestamptz)': not_before,
        '"start_by" => CAST({} AS timestamptz)': start_by,
        '"key" => CAST({} AS text)': key,
        '"traceparent" => CAST({} AS text)': traceparent(),
    }
    # The SQL function has the defaults.
    stated = {argument: value for argument, value in given.items() if value is not None}
    if hasattr(connection, "fetchval"):
        return _by_asyncpg(connection, stated)
    packages = {base.__module__.partition(".")[0] for base in type(connection).__mro__}
    if "sqlalchemy" in packages:
        return _by_sqlalchemy(connection, stated)
    if hasattr(connection, "cursor"):
        return _by_cursor(connection, stated)
    raise TypeError(
        f"cannot enqueue over a {type(connection).__module__}.{type(connection).__qualname__}: "
        "give a connection of asyncpg or psycopg, or a connection or session of SQLAlchemy"
    )


def _statement(stated: dict[str, Any], places: Iterable[str]) -> str:
    """Return the call with a placeholder for each argument."""
    arguments = [argument.format(place) for argument, place in zip(stated, places, strict=True)]
    return f"SELECT CAST(headway.enqueue({', '.join(arguments)}) AS text)"


async def _by_asyncpg(connection: Any, stated: dict[str, Any]) -> UUID:
    statement = _statement(stated, [f"${number + 1}" for number in range(len(stated))])
    return UUID(await connection.fetchval(statement, *stated.values()))


def _by_sqlalchemy(connection: Any, stated: dict[str, Any]) -> Any:
    named = {f"value_{number}": value for number, value in enumerate(stated.values())}
    # The library is loaded, because the connection is its object.
    text = sys.modules["sqlalchemy"].text
    result = connection.execute(text(_statement(stated, [f":{name}" for name in named])), named)
    return _scalar_later(result) if isawaitable(result) else UUID(result.scalar_one())


async def _scalar_later(result: Any) -> UUID:
    return UUID((await result).scalar_one())


def _by_cursor(connection: Any, stated: dict[str, Any]) -> Any:
    cursor = connection.cursor()
    if hasattr(cursor, "row_factory"):
        # The application may have set another kind of row.
        cursor.row_factory = lambda _: tuple
    executed = cursor.execute(_statement(stated, ["%s"] * len(stated)), list(stated.values()))
    if isawaitable(executed):
        return _row_later(cursor, executed)
    try:
        return UUID(cursor.fetchone()[0])
    finally:
        cursor.close()


async def _row_later(cursor: Any, executed: Any) -> UUID:
    try:
        await executed
        return UUID((await cursor.fetchone())[0])
    finally:
        await cursor.close()
