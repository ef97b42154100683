/** The first argument of a job's body. */

import type { Activations, Wanted } from "./activations.js";
import type { OrderedRun } from "./protocol.js";
import type { Level, Report } from "./report.js";

type Fields = Record<string, unknown>;
type Log = (message: string, fields?: Fields) => void;

/** What a body may use; most of it is made when it is used first, because few bodies need it. */
export interface Tools {
  readonly signal: AbortSignal;
  readonly cancelled: boolean;
  readonly report: Report;
  readonly activations: Activations;
}

export class Context {
  readonly run: string;
  readonly work: string;
  readonly job: string;
  readonly manifest: string | undefined;
  readonly attempt: number;
  /** The maximum number of attempts, this one included. */
  readonly attempts: number;
  readonly dueAt: Date | undefined;
  readonly cause: string;
  private writers: Record<Level, Log> | undefined;

  constructor(
    ordered: OrderedRun,
    job: string,
    private readonly tools: Tools,
  ) {
    this.run = ordered.run;
    this.work = ordered.work;
    this.job = job;
    this.manifest = ordered.manifest ?? undefined;
    this.attempt = ordered.attempt;
    this.attempts = ordered.attempts;
    this.dueAt = ordered.due_at ? new Date(ordered.due_at) : undefined;
    this.cause = ordered.cause;
  }

  /** Aborted when the run should stop: pass it to everything that can be aborted. */
  get signal(): AbortSignal {
    return this.tools.signal;
  }

  /** Lines that are kept with the run: `context.log.info("fetched", { rows: 7 })`. */
  get log(): Record<Level, Log> {
    const write =
      (level: Level): Log =>
      (message, fields = {}) =>
        this.tools.report.line(level, message, fields);
    this.writers ??= {
      debug: write("debug"),
      info: write("info"),
      warning: write("warning"),
      error: write("error"),
      critical: write("critical"),
    };
    return this.writers;
  }

  /** Report progress, from 0 to 100, and in words. */
  progress(percent?: number, message?: string): void {
    this.tools.report.progress(percent, message);
  }

  /**
   * Activate a dormant dependent of this run's manifest, with an input.
   *
   * It is valid as soon as this resolves, even if the run fails later. `key` distinguishes several
   * activations of one dependent. By default they are numbered, so that a retry that does the same
   * activates nothing twice. An activation that is not awaited is awaited before the run's outcome,
   * and fails the run if it fails.
   */
  activate(manifest: string, input?: unknown, key?: string): Promise<void> {
    return this.tools.activations.activate([{ manifest, input, key }]);
  }

  /** Activate several dependents: all or none. */
  activateMany(wanted: Iterable<Wanted>): Promise<void> {
    return this.tools.activations.activate([...wanted]);
  }

  /** Whether the run should stop. */
  get cancelled(): boolean {
    return this.tools.cancelled;
  }
}
