/**
 * Runs jobs of Headway in TypeScript.
 *
 *     const worker = new Worker({ slots: 20 });
 *     worker.job("resize", async (context, input: { url: string }) => { ... });
 *     await worker.run();
 */
export { Context } from "./context.js";
export { Fatal, type Handler } from "./execution.js";
export { Worker, type WorkerOptions } from "./worker.js";
