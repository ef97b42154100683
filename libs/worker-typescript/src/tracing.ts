/**
 * Spans, and trace context as a string. It needs only OpenTelemetry's API: without an SDK nothing is
 * recorded, and the trace context of an order is passed on unchanged.
 */

import {
  context as contexts,
  propagation,
  ROOT_CONTEXT,
  trace,
  type Attributes,
  type Context,
  type Link,
  type Span,
} from "@opentelemetry/api";

const tracer = trace.getTracer("headway-worker");

/** The current trace context as a string, if an SDK records. */
export function traceparent(context: Context = contexts.active()): string | undefined {
  const carrier: Record<string, string> = {};
  propagation.inject(context, carrier);
  return carrier["traceparent"];
}

/** Call a function in a span under the first of these contexts, linked to the others. */
export async function traced<Result>(
  name: string,
  parents: (string | null | undefined)[],
  attributes: Attributes,
  act: (span: Span, traceparent: string | undefined) => Promise<Result>,
): Promise<Result> {
  const [first, ...others] = parents.filter((parent) => parent).map(extracted);
  const parent = first ?? ROOT_CONTEXT;
  const links = others.map(linkTo).filter((link) => link !== undefined);
  const span = tracer.startSpan(name, { attributes, links }, parent);
  const inside = trace.setSpan(parent, span);
  try {
    return await contexts.with(inside, () => act(span, traceparent(inside)));
  } finally {
    span.end();
  }
}

function extracted(traceparent: string | null | undefined): Context {
  return propagation.extract(ROOT_CONTEXT, { traceparent: traceparent ?? "" });
}

function linkTo(context: Context): Link | undefined {
  const linked = trace.getSpanContext(context);
  return linked === undefined ? undefined : { context: linked };
}
