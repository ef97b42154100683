/**
 * Exports spans over OTLP/HTTP where an endpoint is configured, as the other parts of Headway do.
 *
 *     import { startExporting } from "headway-worker/telemetry";
 *     const exporting = await startExporting("my-worker");
 *     await worker.run();
 *     await exporting?.stop();
 *
 * A program that sets up an OpenTelemetry SDK of its own does not need this. The packages are
 * optional peers of this one, and loaded only if there is an endpoint.
 */

const ENDPOINTS = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
const PACKAGES = [
  "@opentelemetry/exporter-trace-otlp-proto",
  "@opentelemetry/resources",
  "@opentelemetry/sdk-trace-node",
];
/** A missing collector must not delay the exit. */
const EXPORT_TIMEOUT = 2_000;

export interface Exporting {
  /** Export the remaining spans. */
  stop(): Promise<void>;
}

/** Export by OTLP where an endpoint is configured; otherwise nothing is loaded. */
export async function startExporting(service: string): Promise<Exporting | undefined> {
  if (!ENDPOINTS.some((name) => process.env[name])) return undefined;
  const { OTLPTraceExporter, defaultResource, resourceFromAttributes, ...sdk } = await load();
  const named = { "service.name": process.env["OTEL_SERVICE_NAME"] || service };
  const provider = new sdk.NodeTracerProvider({
    resource: defaultResource().merge(resourceFromAttributes(named)),
    spanProcessors: [new sdk.BatchSpanProcessor(new OTLPTraceExporter())],
  });
  provider.register();
  return {
    stop: async () => {
      const late = new Promise<void>((done) => setTimeout(done, EXPORT_TIMEOUT).unref());
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
    },
  };
}

async function load() {
  try {
    const [{ OTLPTraceExporter }, { defaultResource, resourceFromAttributes }, sdk] =
      await Promise.all([
        import("@opentelemetry/exporter-trace-otlp-proto"),
        import("@opentelemetry/resources"),
        import("@opentelemetry/sdk-trace-node"),
      ]);
    const { BatchSpanProcessor, NodeTracerProvider } = sdk;
    return {
      OTLPTraceExporter,
      defaultResource,
      resourceFromAttributes,
      BatchSpanProcessor,
      NodeTracerProvider,
    };
  } catch (error) {
    const remedy = `npm install ${PACKAGES.join(" ")}`;
    throw new Error(`spans cannot be exported: ${String(error)}; ${remedy}`, { cause: error });
  }
}
