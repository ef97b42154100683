/** The bodies that the end-to-end tests of the project run in TypeScript. */

import { appendFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

import { ActivationRefused, Fatal, Worker } from "../src/index.js";
import { startExporting } from "../src/telemetry.js";

const exporting = await startExporting("headway-worker");

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

/** The first run of this process waits for so many seconds, and says why it was stopped. */
let waits = true;
worker.job("ts-waits-once", async (context, seconds: number) => {
  if (!waits) return;
  waits = false;
  console.log("begun");
  try {
    await pause(seconds * 1000, undefined, { signal: context.signal });
    console.log("waited");
  } catch (error) {
    console.log(`stopped: ${(context.signal.reason as Error).message}`);
    throw error;
  }
});

worker.job("ts-stubborn", async (context) => {
  context.signal.addEventListener("abort", () => console.log("asked to stop"));
  await pause(60_000);
});

/** Runs that are numbered by their input; each leaves a line, and one may be held. */
worker.job("job", async (context, number: number) => {
  const folder = process.env["HEADWAY_TEST_FOLDER"] ?? ".";
  appendFileSync(`${folder}/begun`, `${number}\n`);
  if (process.env["HOLD"] === String(number)) {
    await pause(60_000, undefined, { signal: context.signal });
  }
  return number;
});

worker.job("ts-activates", async (context, input: { refused?: boolean } | null) => {
  try {
    await context.activate("nobody");
  } catch (error) {
    if (!(error instanceof ActivationRefused)) throw error;
    if (input?.refused) throw error;
  }
  await context.activate("mail", { day: "monday" });
  await context.activateMany([{ manifest: "mail", input: 1 }, { manifest: "archive" }]);
  void context.activate("mail", "unawaited", "mine");
});

worker.job("ts-activates-carelessly", (context) => {
  void context.activate("nobody");
});

await worker.run();
await exporting?.stop();
// A body that does not heed its signal would keep the process.
process.exit(0);
