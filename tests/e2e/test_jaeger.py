"""A trace in a real Jaeger, from the decision to the settled outcome."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml
from headway_dispatcher.provisioning import provision_by
from support import jaeger
from support.drawing import Drawn, draw, roots
from support.jaeger import Jaeger, fetch
from support.processes import TESTS
from support.world import STREAMS, until

needs_jaeger = pytest.mark.skipif(
    jaeger.missing() is not None, reason=f"Jaeger: {jaeger.missing()}"
)
ROOT = TESTS.parent

# The traces of a work and of its dependent, both settled.
TRACES = """
    SELECT parent.trace_id, child.trace_id AS child
    FROM dispatcher.run AS parent
    JOIN dispatcher.run AS child ON child.job = 'mail' AND child.created_at > parent.created_at
    WHERE parent.job = 'report' AND parent.attempt = 2 AND parent.state = 'completed'
      AND child.state = 'completed'
      AND NOT EXISTS (SELECT FROM scheduler.work WHERE id = parent.work_id OR id = child.work_id)
    ORDER BY parent.created_at, child.created_at LIMIT 1
"""
TREE = """\
scheduler decide
  scheduler publish headway.work.reports
  dispatcher admit
    dispatcher publish headway.run.report
    worker claim mine
      dispatcher project
    worker run 1 ConnectionError
      dispatcher project
        dispatcher settle retry
  dispatcher admit ⇠ dispatcher settle retry
    dispatcher publish headway.run.report
    worker claim mine
      dispatcher project
    worker run 2
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.reports
          scheduler settle completed
"""
TREE_OF_MAIL = """\
scheduler decide
  scheduler publish headway.work.reports
  dispatcher admit
    dispatcher publish headway.run.mail
    worker claim mine
      dispatcher project
    worker run 1
      dispatcher project
        dispatcher settle completed
          dispatcher publish headway.settled.reports
          scheduler settle completed
"""


@pytest_asyncio.fixture
async def running(tmp_path) -> AsyncIterator[Jaeger]:
    made = Jaeger(tmp_path / "jaeger")
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


@needs_jaeger
@pytest.mark.timeout(120)
async def test_jaeger_returns_the_whole_trace(running, processes, broker, world):
    await provision_by(broker, STREAMS)
    processes.export_to(running.otlp)
    for command in ("dispatcher", "worker", "scheduler"):
        app = str(TESTS / "support" / "reporting_app.py")
        await processes.headway(command, HEADWAY_APP=app)

    async def found():
        rows = await world.rows(TRACES)
        return rows[0] if rows else None

    traces = await until(found, within=60, what="a report that was tried again, and its mail")

    spans = await fetch_spans(running, traces["trace_id"], lines=TREE.count("\n"))
    [top] = roots(spans)
    assert draw(top, spans) == TREE
    mailed = await fetch_spans(running, traces["child"], lines=TREE_OF_MAIL.count("\n"))
    [child] = roots(mailed)
    assert draw(child, mailed) == TREE_OF_MAIL
    assert top.trace in {trace for trace, _ in child.links}, "the dependent is linked to it"


async def fetch_spans(running: Jaeger, trace: str, *, lines: int) -> list[Drawn]:
    """Return the spans of a trace once all of them have arrived."""

    async def complete() -> list[Drawn]:
        spans = fetch(running.url, trace)
        return spans if len(spans) >= lines else []

    return await until(complete, within=20, what=f"Jaeger has {lines} spans of {trace}")


def test_one_version_of_jaeger_is_named_everywhere():
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    image = f"jaegertracing/jaeger:{jaeger.VERSION}"
    assert compose["services"]["jaeger"]["image"] == image
    overlay = (ROOT / "deploy" / "k8s" / "overlays" / "dev" / "jaeger.yaml").read_text()
    assert f"image: {image}\n" in overlay
