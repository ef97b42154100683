"""Blocks of the docs that need a database, or a console with the services behind it."""

import ast
import contextlib
import inspect
import io

import asyncpg
import headway
import pytest
from headway import App, every
from headway_embedded import run_servers
from support.code_blocks import blocks_of
from support.timeline import Timeline

TABLE = "CREATE TABLE orders (id bigint, customer text)"
SQL = blocks_of("sql")
ON_A_CONNECTION = [block for block in blocks_of("python") if "connection." in block.text]
WITH_A_CLIENT = [block for block in blocks_of("python") if "Client(" in block.text]


async def run_block(block, names: dict) -> None:
    """Run a block that may await something outside of a function."""
    code = compile(block.text, block.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if inspect.isawaitable(found):
        await found


async def declare(database) -> None:
    app = App("shop")

    @app.job("send-invoice")
    async def send_invoice(ctx, invoice: dict): ...

    await Timeline(database).declare(app)


@pytest.mark.parametrize("block", SQL, ids=lambda block: block.name)
async def test_statements_run(block, database, database_url, application):
    await declare(database)
    await application.execute(TABLE)
    if "TO shop" in block.text:
        with contextlib.suppress(asyncpg.DuplicateObjectError):  # roles belong to the server
            await application.execute("CREATE ROLE shop NOLOGIN")
    await application.execute(block.text)


@pytest.mark.parametrize("block", ON_A_CONNECTION, ids=lambda block: block.name)
async def test_programs_on_a_connection_run(block, database, application):
    await declare(database)
    await application.execute(TABLE)
    await run_block(block, {"connection": application, "headway": headway})
    assert await application.fetchval("SELECT count(*) FROM orders") == 1
    assert await application.fetchval("SELECT count(*) FROM scheduler.enqueued") == 1


@pytest.mark.parametrize("block", WITH_A_CLIENT, ids=lambda block: block.name)
async def test_programs_with_a_client_run(block, world, console):
    app = App("crm")

    @app.job("sync-customer", group="sync")
    def sync_customer(ctx, customer: dict): ...

    app.schedule("sync-ada", job=sync_customer, when=every(minutes=5), input={"id": 1})
    await world.scheduler(app)
    await world.dispatcher()
    text = block.text.replace("https://headway.example.org", console.url)
    text = text.replace("headway_…", console.tokens["admin"])
    names = {"__name__": "example"}
    exec(compile(text, block.name, "exec"), names)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        await names["main"]()
    assert "sync-ada" in printed.getvalue()


@pytest.mark.thorough
async def test_the_embedded_servers_start_as_their_page_shows(tmp_path, monkeypatch):
    [block] = [block for block in blocks_of("python") if "run_servers(" in block.text]
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        await run_block(block, {"Path": type(tmp_path), "run_servers": run_servers})
    assert "postgresql://" in printed.getvalue()
