"""Traces as text, and as Jaeger returns them."""

from support.drawing import draw, roots
from support.jaeger import read

TRACE = "a" * 32


def span(identity: str, name: str, *, of: str = "", at: int = 0, service: str = "p1", **tags):
    references = [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": of}] if of else []
    links = tags.pop("links", [])
    return {
        "traceID": TRACE,
        "spanID": identity,
        "operationName": name,
        "references": references
        + [
            {"refType": "FOLLOWS_FROM", "traceID": trace, "spanID": span_id}
            for trace, span_id in links
        ],
        "startTime": 1_000_000 + at,
        "duration": 1_500,
        "tags": [{"key": f"headway.{key}", "value": value} for key, value in tags.items()],
        "processID": service,
    }


ANSWER = {
    "traceID": TRACE,
    "processes": {
        "p1": {"serviceName": "headway-scheduler"},
        "p2": {"serviceName": "headway-worker"},
    },
    # Not in order of their start.
    "spans": [
        span(
            "d",
            "settle",
            of="b",
            at=9000,
            outcome="completed",
            links=[(TRACE, "c"), ("f" * 32, "e")],
        ),
        span("c", "publish", of="a", at=1000, subject="headway.run.job.0f0e"),
        span("b", "run", of="a", at=2000, service="p2", attempt=1, failure="ValueError"),
        span("a", "decide", manifest="parent"),
    ],
}
TREE = """\
scheduler decide
  scheduler publish headway.run.job
  worker run 1 ValueError
    scheduler settle completed ⇠ scheduler publish headway.run.job
"""


def test_a_trace_is_drawn_in_the_order_in_which_spans_began():
    spans = read(ANSWER)
    [top] = roots(spans)
    assert draw(top, spans) == TREE
    assert (top.attributes, top.ended - top.began) == ({"manifest": "parent"}, 1_500_000)


def test_another_order_and_another_text():
    spans = read(ANSWER)
    [top] = roots(spans)
    drawn = draw(top, spans, order=lambda span: -span.began, text=lambda span: span.id)
    assert drawn == "a\n  b\n    d ⇠ scheduler publish headway.run.job\n  c\n"
