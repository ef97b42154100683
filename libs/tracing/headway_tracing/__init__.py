"""Spans, and trace context as a string that can be stored.

The transaction of a decision stores the trace context beside it as a W3C `traceparent`, and the
service that acts on the decision continues the trace. This package needs only OpenTelemetry's API:
without an exporter nothing is recorded. `log` writes structured log entries.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# Separates stored contexts: a span continues the first and is linked to the others.
CONTEXTS_APART = " "

# This also sets the provider that the environment names, if it names one.
_tracer = trace.get_tracer("headway")
_propagator = TraceContextTextMapPropagator()

Attribute = str | int | float | bool | UUID

# Replaces a span while nothing is recorded.
_NO_SPAN = nullcontext(trace.INVALID_SPAN)


def span(
    name: str, *, parent: str | None = None, **attributes: Attribute | None
) -> AbstractContextManager[trace.Span]:
    """Start a span under the stored context `parent`, or under the current one.

    If `parent` has several contexts, the span is linked to all but the first. Attributes are named
    `headway.<key>`.
    """
    if not is_recording():
        return _NO_SPAN
    first, *others = parent.split(CONTEXTS_APART) if parent else [None]
    context = _propagator.extract({"traceparent": first}) if first else None
    return _start(name, context, map(_stored, others), attributes)


def new_trace(
    name: str, *, cause: str | None = None, **attributes: Attribute | None
) -> AbstractContextManager[trace.Span]:
    """Start a new trace, linked to the current span and to the stored context `cause`."""
    if not is_recording():
        return _NO_SPAN
    current = trace.get_current_span().get_span_context()
    return _start(name, Context(), (current, _stored(cause)), attributes)


def _start(
    name: str,
    context: Context | None,
    linked: Iterable[trace.SpanContext],
    attributes: dict[str, Attribute | None],
) -> AbstractContextManager[trace.Span]:
    return _tracer.start_as_current_span(
        name,
        context=context,
        links=[trace.Link(other) for other in linked if other.is_valid],
        attributes={
            f"headway.{key}": str(value) if isinstance(value, UUID) else value
            for key, value in attributes.items()
            if value is not None
        },
    )


def _stored(parent: str | None) -> trace.SpanContext:
    """Return the span of a stored context; an invalid one for `None`."""
    if parent is None:
        return trace.INVALID_SPAN_CONTEXT
    context = _propagator.extract({"traceparent": parent}, context=Context())
    return trace.get_current_span(context).get_span_context()


def is_recording() -> bool:
    """Return whether spans are recorded; otherwise hot paths skip them."""
    # `get_tracer_provider` reads the environment at each call, until a provider is set.
    return trace._TRACER_PROVIDER is not None  # noqa: SLF001


def traceparent() -> str | None:
    """Return the current context as a string to store, or `None`."""
    if not is_recording():
        return None
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return carrier.get("traceparent")


def first_context(stored: str | None) -> str | None:
    """Return the context that a span continues, without the linked ones."""
    return stored.split(CONTEXTS_APART)[0] if stored else None


def trace_id(parent: str | None) -> str | None:
    """Return the trace id of a stored context, or `None`."""
    first = first_context(parent)
    parts = first.split("-") if first else []
    return parts[1] if len(parts) == 4 else None
