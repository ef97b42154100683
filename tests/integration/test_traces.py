"""A trace follows a piece of work through all services; spans are received over OTLP."""

from collections.abc import AsyncIterator
from pathlib import Path

import headway
import headway_tracing
import pytest
import pytest_asyncio
from headway import Client
from headway_dispatcher.provisioning import provision_by
from headway_postgres_kit import Database
from support.collector import Collector
from support.processes import TESTS, Processes
from support.world import STREAMS, until

# The tree that docs/tracing.md shows: service, operation and result.
TREE_OF_A_RETRY = """\
scheduler decide
  scheduler publish headway.work.g
  dispatcher admit
    dispatcher publish headway.run.flaky
    worker claim mine
      dispatcher project
    worker run 1 ValueError
      dispatcher project
        dispatcher settle retry
  dispatcher admit ⇠ dispatcher settle retry
    dispatcher publish headway.run.flaky
    worker claim mine
      dispatcher project
    worker run 2
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.g
          scheduler settle completed
"""

TREE_OF_A_DEPENDENT = """\
scheduler decide ⇠ scheduler tick ⇠ scheduler settle completed
  scheduler publish headway.work.g
  dispatcher admit
    dispatcher publish headway.run.after
    worker claim mine
      dispatcher project
    worker run 1
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.g
          scheduler settle completed
"""

TREE_OF_AN_ACTIVATION = """\
scheduler decide
  scheduler publish headway.work.g
  dispatcher admit
    dispatcher publish headway.run.waker
    worker claim mine
      dispatcher project
    worker run 1
      dispatcher project
        dispatcher publish headway.settled.g
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.g
          scheduler settle completed
"""

TREE_OF_A_RETRIED_LETTER = """\
scheduler decide ⇠ scheduler enqueue
  scheduler publish headway.work.g
  dispatcher admit
    dispatcher publish headway.run.stubborn
    worker claim mine
      dispatcher project
    worker run 1 ValueError
      dispatcher project
        dispatcher settle dead_lettered
          dispatcher publish headway.settled.g
          dispatcher publish headway.settled.g
          scheduler settle dead_lettered
  dispatcher retry
    dispatcher publish headway.settled.g
  dispatcher admit ⇠ dispatcher retry
    dispatcher publish headway.run.stubborn
    worker claim mine
      dispatcher project
    worker run 1
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.g
          scheduler settle completed
"""

TREE_OF_A_CANCEL = """\
scheduler decide ⇠ scheduler enqueue
  scheduler publish headway.work.g
  dispatcher settle cancelled
    dispatcher publish headway.settled.g
    scheduler settle cancelled
"""

APPLICATION = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    made.address = await made.start()
    yield made
    made.stop()


@pytest_asyncio.fixture
async def processes(
    database_url, nats_url, broker, tmp_path, collector
) -> AsyncIterator[Processes]:
    """Run scheduler, dispatcher and worker as processes that export their spans."""
    # Without streams the relay might publish twice and export both spans.
    await provision_by(broker, STREAMS)
    made = Processes(
        database_url, nats_url, tmp_path, provision="auto", app=str(TESTS / "support/traced_app.py")
    )
    made.export_to(collector.address)
    try:
        for command in ("dispatcher", "worker", "scheduler"):
            await made.headway(command)
        yield made
    finally:
        await made.stop()
        print(made.logs())


async def ready(client: Client, job: str = "parent"):
    """Trigger as soon as a scheduler answers."""

    async def answered():
        try:
            return await client.trigger(job)
        except headway.RequestFailed:
            return None

    return await until(answered, within=30, what="a scheduler answers")


async def test_one_trace_follows_a_piece_of_work(
    collector, processes, world, client, database: Database
):
    answer = await ready(client)
    top = await collector.seen(TREE_OF_A_RETRY, work=str(answer.work))
    child = await collector.seen(TREE_OF_A_DEPENDENT, manifest="child")
    settled = child.links[-1]
    assert settled[0] == top.trace, "a dependent is linked to its parent's trace"
    assert child.trace != top.trace, "and has one of its own"

    async def passes_exported():
        names = {span.name for span in collector.spans}
        return {"tick", "relay", "gate", "projector", "intake"} <= names

    await until(passes_exported, within=15, what="every pass has exported a span")
    traces = await world.rows(
        "SELECT DISTINCT trace_id FROM dispatcher.run WHERE work_id = $1", answer.work
    )
    assert [row["trace_id"] for row in traces] == [top.trace], "runs name their trace"


@pytest.mark.thorough
async def test_activated_work_is_linked_to_its_run(collector, processes, world, client):
    await ready(client, "waker")
    top = await collector.seen(TREE_OF_AN_ACTIVATION, manifest="waker")

    async def woken():
        return collector.decision(manifest="woken")

    activated = await until(woken, within=20, what="the dormant dependent is decided")
    assert top.trace in {trace for trace, _ in activated.links}
    assert activated.trace != top.trace


@pytest.mark.thorough
async def test_enqueued_work_is_linked_to_the_application(collector, processes, world, client):
    await ready(client)
    work = await world.value("SELECT headway.enqueue('flaky', traceparent => $1)", APPLICATION)
    expected = TREE_OF_A_RETRY.replace("decide", "decide ⇠ scheduler enqueue", 1)
    top = await collector.seen(expected, work=str(work))
    assert top.links[-1] == ("a" * 32, "b" * 16)


@pytest.mark.thorough
async def test_a_letter_that_is_retried_goes_on_in_the_trace_of_its_work(
    collector, processes, world, client
):
    await ready(client)
    work = (await client.enqueue("stubborn", 0)).work
    letter = await world.until("SELECT id FROM dispatcher.dead_letter WHERE work_id = $1", work)
    await client.retry(letter, input=1)
    await collector.seen(TREE_OF_A_RETRIED_LETTER, work=str(work))


@pytest.mark.thorough
async def test_what_is_cancelled_before_it_runs_is_settled_in_its_trace(
    collector, processes, world, client
):
    await ready(client)
    work = (await client.enqueue("stubborn", 1, delay=3600)).work
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE id = $1", work)
    await client.cancel(work)
    await collector.seen(TREE_OF_A_CANCEL, work=str(work))


def test_the_guide_shows_the_tree_that_is_received():
    guide = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
    assert TREE_OF_A_RETRY in guide
    assert TREE_OF_A_DEPENDENT in guide


def test_no_span_is_created_without_a_recorder():
    assert not headway_tracing.is_recording()
    with headway_tracing.span("x", parent=APPLICATION) as current:
        assert not current.get_span_context().is_valid
        assert headway_tracing.traceparent() is None


@pytest.mark.parametrize(
    ("stored", "first", "trace"),
    [
        (None, None, None),
        (APPLICATION, APPLICATION, "a" * 32),
        (f"{APPLICATION} 00-{'c' * 32}-{'d' * 16}-01", APPLICATION, "a" * 32),
    ],
)
def test_the_first_of_several_contexts_is_continued(stored, first, trace):
    assert headway_tracing.first_context(stored) == first
    assert headway_tracing.trace_id(stored) == trace
