/** The bodies that the end-to-end tests of the project run in TypeScript. */

import { setTimeout as pause } from "node:timers/promises";

import { Fatal, Worker } from "../src/index.js";

const worker = new Worker({
  name: process.env["WORKER_NAME"] ?? "typescript-1",
  slots: Number(process.env["WORKER_SLOTS"] ?? "4"),
  heartbeatSeconds: 0.2,
  drainSeconds: Number(process.env["DRAIN_SECONDS"] ?? "5"),
});

worker.job("ts-echo", (context, input: unknown) => ({
  echo: input,
  by: worker.name,
  manifest: context.manifest,
  attempt: context.attempt,
}));

worker.job("ts-fail-once", (context) => {
  if (context.attempt === 1) throw new RangeError("out of range");
  return { attempt: context.attempt };
});

worker.job("ts-talks", (context) => {
  context.progress(50, "half way");
  context.log.info("fetched", { rows: 7 });
  context.log.error("odd");
  context.progress(100);
});

worker.job("ts-fatal", () => {
  throw new Fatal("never again");
});

worker.job("ts-big", () => "x".repeat(300 * 1024));

worker.job("ts-slow", async (context) => {
  await pause(60_000, undefined, { signal: context.signal });
});

worker.job("ts-stubborn", async () => {
  await pause(60_000);
});

await worker.run();
// A body that does not heed its signal would keep the process.
process.exit(0);
