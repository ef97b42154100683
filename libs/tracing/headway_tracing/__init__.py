"""Spans, and trace context as a string that can be stored.

Trace context is captured when a decision is written down, stored beside it as a W3C
`traceparent`, and taken up again by whoever acts on it. This package needs only
OpenTelemetry's API: where no exporter is set up, nothing is recorded.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Between stored contexts that belong together. The first is what a span goes on from; to the
# others it is linked.
CONTEXTS_APART = " "

_tracer = trace.get_tracer("headway")
_propagator = TraceContextTextMapPropagator()

Attribute = str | int | float | bool

# What stands for a span where nobody records any.
_NOTHING = nullcontext(trace.INVALID_SPAN)


def span(
    name: str, *, parent: str | None = None, **attributes: Attribute | None
) -> AbstractContextManager[trace.Span]:
    """A span under the stored context `parent`, or under the current one.

    If several contexts are stored there, the span is linked to all but the first. Attributes
    are named `headway.<key>`.
    """
    if not is_recording():
        return _NOTHING
    first, *others = parent.split(CONTEXTS_APART) if parent else [None]
    context: Context | None = _propagator.extract({"traceparent": first}) if first else None
    return _tracer.start_as_current_span(
        name, context=context, links=_links(map(_stored, others)), attributes=_named(attributes)
    )


def new_trace(
    name: str, *, cause: str | None = None, **attributes: Attribute | None
) -> AbstractContextManager[trace.Span]:
    """A span that begins a trace of its own, linked to the one in which it is made.

    `cause` is the stored context of what it is made for, linked as well.
    """
    if not is_recording():
        return _NOTHING
    maker = trace.get_current_span().get_span_context()
    return _tracer.start_as_current_span(
        name,
        context=Context(),
        links=_links((maker, _stored(cause))),
        attributes=_named(attributes),
    )


def _stored(parent: str | None) -> trace.SpanContext:
    """The span of a stored context, an invalid one if there is none."""
    if parent is None:
        return trace.INVALID_SPAN_CONTEXT
    context = _propagator.extract({"traceparent": parent}, context=Context())
    return trace.get_current_span(context).get_span_context()


def _links(contexts: Iterable[trace.SpanContext]) -> list[trace.Link]:
    return [trace.Link(one) for one in contexts if one.is_valid]


def is_recording() -> bool:
    """Whether anybody records spans; if not, hot paths need not pay for them."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _named(attributes: dict[str, Attribute | None]) -> dict[str, Attribute]:
    return {f"headway.{key}": value for key, value in attributes.items() if value is not None}


def traceparent() -> str | None:
    """The current context as a string that can be stored, if there is one."""
    if not is_recording():
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent")


def first_context(stored: str | None) -> str | None:
    """The context to go on from, without those that are only linked."""
    return stored.split(CONTEXTS_APART)[0] if stored else None


def trace_id(parent: str | None) -> str | None:
    """The trace id inside a stored context."""
    first = first_context(parent)
    parts = first.split("-") if first else []
    return parts[1] if len(parts) == 4 else None
