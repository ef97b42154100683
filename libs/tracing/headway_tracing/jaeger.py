"""Draws a trace that Jaeger keeps: `python -m headway_tracing.jaeger TRACE [--url URL]`."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from headway_tracing.drawing import Drawn, by_begin, draw, roots

URL = "http://127.0.0.1:16686"
_TIMEOUT_SECONDS = 10.0
_NANOSECONDS = 1_000
_PREFIX = "headway."


class NoTrace(Exception):
    """Jaeger did not answer with the trace that was asked for."""


def main(arguments: list[str]) -> int:
    """Print a trace with the moment at which each span began and how long it took."""
    parser = argparse.ArgumentParser(prog="headway-trace", description="Draws a trace of Jaeger's.")
    parser.add_argument("trace", help="its id, as dispatcher.metadata.trace_id has it")
    given_url = os.environ.get("HEADWAY_JAEGER_URL") or URL
    parser.add_argument("--url", default=given_url, help="Jaeger's page [HEADWAY_JAEGER_URL]")
    given = parser.parse_args(arguments)
    try:
        spans = fetch(given.url, given.trace)
    except NoTrace as error:
        print(f"headway: {error}", file=sys.stderr)
        return 2
    first = min(span.began for span in spans)
    for top in roots(spans):
        print(draw(top, spans, order=by_begin, tell=lambda span: _timed(span, first)), end="")
    return 0


def fetch(url: str, trace: str) -> list[Drawn]:
    """All spans of a trace, from Jaeger's query API."""
    where = f"{url.rstrip('/')}/api/traces/{trace}"
    try:
        with urllib.request.urlopen(where, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            told = json.load(answer)
    except urllib.error.HTTPError as error:
        raise NoTrace(f"Jaeger has no trace {trace} ({error}): is it exported there?") from error
    except (OSError, ValueError) as error:
        raise NoTrace(f"Jaeger does not answer at {url} ({error}): give --url") from error
    return [span for one in told["data"] for span in read(one)]


def read(trace: Mapping[str, Any]) -> list[Drawn]:
    """The spans of one trace as Jaeger tells it."""
    services = {key: value["serviceName"] for key, value in trace["processes"].items()}
    return [_span(span, services[span["processID"]]) for span in trace["spans"]]


def _span(span: Mapping[str, Any], service: str) -> Drawn:
    references = span.get("references") or []
    parent = next((one["spanID"] for one in references if one["refType"] == "CHILD_OF"), "")
    began = span["startTime"] * _NANOSECONDS
    return Drawn(
        service=service,
        name=span["operationName"],
        id=span["spanID"],
        trace=span["traceID"],
        parent=parent,
        began=began,
        ended=began + span["duration"] * _NANOSECONDS,
        links=[
            (one["traceID"], one["spanID"])
            for one in references
            if one["refType"] == "FOLLOWS_FROM"
        ],
        attributes={tag["key"].removeprefix(_PREFIX): tag["value"] for tag in span["tags"]},
    )


def _timed(span: Drawn, first: int) -> str:
    began, took = (span.began - first) / 1e6, (span.ended - span.began) / 1e6
    return f"{span.called} (at {began:.1f} ms, {took:.1f} ms)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
