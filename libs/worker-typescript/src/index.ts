/**
 * Runs jobs of Headway in TypeScript.
 *
 *     const worker = new Worker({ slots: 20 });
 *     worker.job("resize", async (context, input: { url: string }) => { ... });
 *     await worker.run();
 */
export type { Wanted } from "./activations.js";
export { Context } from "./context.js";
export { ActivationRefused, ActivationUnavailable, Fatal, LeaseLost } from "./errors.js";
export type { Handler } from "./execution.js";
export { Worker, type JobOptions, type WorkerOptions } from "./worker.js";
