"""Enqueued work, from an application's transaction through all services."""

import headway
import pytest
from headway import App, Fatal, retry
from headway.client.client import RequestFailed
from support.enqueuing import app_with_jobs
from support.invariants import check_invariants


class TestThroughAllServices:
    async def test_a_row_of_the_application_and_its_work_commit_together(self, world, application):
        app = App("shop")

        @app.job("mail")
        async def mail(ctx, order: int):
            return {"order": order, "manifest": ctx.manifest}

        await world.serve(app)
        await world.scheduler(app)
        async with application.transaction():
            await application.execute("CREATE TABLE orders (id integer)")
            await application.execute("INSERT INTO orders VALUES (7)")
            work = await headway.enqueue(application, "mail", 7, key="order-7")
        await world.until_settled()
        [run] = await world.rows("SELECT work_id, output FROM dispatcher.run")
        assert tuple(run) == (work, {"order": 7, "manifest": None})
        await check_invariants(world.database)

    async def test_enqueued_work_has_retries_and_dead_letters(self, world, client):
        app = App("shop")

        @app.job("broken")
        @retry(attempts=2, interval=0.05, jitter=0)
        async def broken(ctx):
            raise ValueError("no")

        @app.job("hopeless")
        async def hopeless(ctx):
            raise Fatal("never")

        await world.serve(app)
        await world.scheduler(app)
        works = [(await client.enqueue(job)).work for job in ("broken", "hopeless")]
        await world.until_settled(at_least=2)
        letters = await world.rows("SELECT work_id, attempts FROM dispatcher.dead_letter")
        assert {tuple(row) for row in letters} == {(works[0], 2), (works[1], 1)}
        await check_invariants(world.database)

    async def test_a_client_enqueues_lists_and_dismisses(self, world, client, application):
        await world.scheduler(app_with_jobs())
        answer = await client.enqueue("mail", 7, key="k")
        assert await headway.enqueue(application, "mail", 7, key="k") == answer.work
        again = await client.enqueue("mail", 7, key="k")
        assert again.work == answer.work
        assert "the key 'k' enqueued it before" in again.text, "the audit has no second entry"
        for job, given, complaint in (
            ("nobody", {}, "not declared: Start the scheduler"),
            ("mail", {"input": "x"}, "does not fit job 'mail'"),
            ("mail", {"input": 8, "key": "k"}, "with other parameters"),
        ):
            with pytest.raises(RequestFailed, match=complaint):
                await client.enqueue(job, **given)
        bad = await headway.enqueue(application, "mail", "x")
        await world.until("SELECT count(*) FROM scheduler.enqueued WHERE state = 'refused'")
        [seen] = await client.enqueued(refused_only=True)
        assert (seen.work, seen.state) == (bad, "refused")
        assert "not of type" in seen.reason
        assert ": deleted" in (await client.dismiss(bad)).text
        assert await client.enqueued() == []
        with pytest.raises(RequestFailed, match="was not refused"):
            await client.dismiss(bad)
        audit = await world.rows("SELECT type, source FROM scheduler.history ORDER BY id")
        assert [tuple(row) for row in audit if "work" in row["type"]] == [
            ("headway.work.enqueued.v1", "operator/ada"),
            ("headway.work.dismissed.v1", "operator/ada"),
        ]
