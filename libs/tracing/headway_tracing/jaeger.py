"""Draws a trace from Jaeger: `python -m headway_tracing.jaeger TRACE [--url URL]`."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from headway_tracing.drawing import Drawn, draw, roots

URL = "http://127.0.0.1:16686"
_TIMEOUT_SECONDS = 10.0
_NANOSECONDS = 1_000
_PREFIX = "headway."


class NoTrace(Exception):
    """Jaeger is not reachable or does not have the trace."""


def main(arguments: list[str]) -> int:
    """Print a trace with the start and the duration of each span."""
    parser = argparse.ArgumentParser(prog="headway-trace", description="Draw a trace from Jaeger.")
    parser.add_argument("trace", help="the trace id, as in dispatcher.metadata.trace_id")
    default_url = os.environ.get("HEADWAY_JAEGER_URL") or URL
    parser.add_argument("--url", default=default_url, help="URL of Jaeger [HEADWAY_JAEGER_URL]")
    options = parser.parse_args(arguments)
    try:
        spans = fetch(options.url, options.trace)
    except NoTrace as error:
        print(f"headway: {error}", file=sys.stderr)
        return 2
    first = min(span.began for span in spans)
    for top in roots(spans):
        print(draw(top, spans, text=lambda span: _timed(span, first)), end="")
    return 0


def fetch(url: str, trace: str) -> list[Drawn]:
    """Read all spans of a trace from Jaeger's query API."""
    where = f"{url.rstrip('/')}/api/traces/{trace}"
    try:
        with urllib.request.urlopen(where, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise NoTrace(f"Jaeger has no trace {trace} ({error}): is it exported there?") from error
    except (OSError, ValueError) as error:
        raise NoTrace(f"Jaeger does not answer at {url} ({error}): give --url") from error
    return [span for data in found["data"] for span in read(data)]


def read(trace: Mapping[str, Any]) -> list[Drawn]:
    """Convert the spans of a trace in Jaeger's format."""
    services = {key: value["serviceName"] for key, value in trace["processes"].items()}
    return [_span(span, services[span["processID"]]) for span in trace["spans"]]


def _span(span: Mapping[str, Any], service: str) -> Drawn:
    references = span.get("references") or []
    parents = [ref["spanID"] for ref in references if ref["refType"] == "CHILD_OF"]
    began = span["startTime"] * _NANOSECONDS
    return Drawn(
        service=service,
        name=span["operationName"],
        id=span["spanID"],
        trace=span["traceID"],
        parent=parents[0] if parents else "",
        began=began,
        ended=began + span["duration"] * _NANOSECONDS,
        links=[
            (ref["traceID"], ref["spanID"])
            for ref in references
            if ref["refType"] == "FOLLOWS_FROM"
        ],
        attributes={tag["key"].removeprefix(_PREFIX): tag["value"] for tag in span["tags"]},
    )


def _timed(span: Drawn, first: int) -> str:
    began, took = (span.began - first) / 1e6, (span.ended - span.began) / 1e6
    return f"{span.label} (at {began:.1f} ms, {took:.1f} ms)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
