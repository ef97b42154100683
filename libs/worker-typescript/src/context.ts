/** What a job's body is given besides its input. */

import type { OrderedRun } from "./protocol.js";

export class Context {
  readonly run: string;
  readonly work: string;
  readonly job: string;
  readonly manifest: string | undefined;
  readonly attempt: number;
  /** How many attempts there will be at most, this one included. */
  readonly attempts: number;
  readonly dueAt: Date | undefined;
  readonly cause: string;
  /** Aborted when the run should stop: give it to whatever can be aborted. */
  readonly signal: AbortSignal;

  constructor(ordered: OrderedRun, job: string, signal: AbortSignal) {
    this.run = ordered.run;
    this.work = ordered.work;
    this.job = job;
    this.manifest = ordered.manifest ?? undefined;
    this.attempt = ordered.attempt;
    this.attempts = ordered.attempts;
    this.dueAt = ordered.due_at ? new Date(ordered.due_at) : undefined;
    this.cause = ordered.cause;
    this.signal = signal;
  }

  /** Whether the run should stop. */
  get cancelled(): boolean {
    return this.signal.aborted;
  }
}
