/** A worker to try things with: `HEADWAY_NATS_URL=nats://127.0.0.1:4222 node dist/example/demo_worker.js`. */

import { setTimeout as pause } from "node:timers/promises";

import { Fatal, Worker } from "headway-worker";
import { startExporting } from "headway-worker/telemetry";

const exporting = await startExporting("headway-worker-typescript");
const worker = new Worker({ slots: 5 });

worker.job("greet-typescript", async (context, input: { name: string } | null) => {
  await pause(100, undefined, { signal: context.signal });
  if (input?.name === "nobody") throw new Fatal("there is nobody to greet");
  return { greeting: `hello ${input?.name ?? "world"}`, attempt: context.attempt };
});

await worker.run();
await exporting?.stop();
