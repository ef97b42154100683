"""Exporting spans."""

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def start_exporting(service: str, environment: Mapping[str, str]) -> TracerProvider | None:
    """Export spans by OTLP where an endpoint is configured; otherwise stay silent."""
    if not any(environment.get(name) for name in _ENDPOINTS):
        return None
    # A quarter of a second that every start without an endpoint is spared.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )

    resource = Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME", service)})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
