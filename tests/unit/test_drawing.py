"""Traces as text, and as Jaeger returns them."""

import http.server
import json
import threading

import pytest
from headway_tracing.drawing import draw, roots
from headway_tracing.jaeger import main, read

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


class Page(http.server.BaseHTTPRequestHandler):
    """A fake Jaeger."""

    def do_GET(self):
        is_known = self.path == f"/api/traces/{TRACE}"
        self.send_response(200 if is_known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [ANSWER] if is_known else None}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def page():
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_command_prints_a_trace_with_its_times(page, capsys):
    assert main([TRACE, "--url", page]) == 0
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0] == "scheduler decide (at 0.0 ms, 1.5 ms)"
    assert drawn[2] == "  worker run 1 ValueError (at 2.0 ms, 1.5 ms)"


def test_a_missing_trace_is_reported_in_one_line(page, capsys):
    assert main(["b" * 32, "--url", page]) == 2
    assert main([TRACE, "--url", "http://127.0.0.1:1"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"headway: Jaeger has no trace {'b' * 32}")
    assert second.startswith("headway: Jaeger does not answer at http://127.0.0.1:1")
