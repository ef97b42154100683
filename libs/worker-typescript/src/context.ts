/** The first argument of a job's body. */

import type { Activations, Wanted } from "./activations.js";
import type { OrderedRun } from "./protocol.js";
import type { Level, Report } from "./report.js";

type Fields = Record<string, unknown>;
type Log = (message: string, fields?: Fields) => void;

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
  /** Aborted when the run should stop: pass it to everything that can be aborted. */
  readonly signal: AbortSignal;
  /** Lines that are kept with the run: `context.log.info("fetched", { rows: 7 })`. */
  readonly log: Record<Level, Log>;

  constructor(
    ordered: OrderedRun,
    job: string,
    signal: AbortSignal,
    private readonly report: Report,
    private readonly activations: Activations,
  ) {
    this.run = ordered.run;
    this.work = ordered.work;
    this.job = job;
    this.manifest = ordered.manifest ?? undefined;
    this.attempt = ordered.attempt;
    this.attempts = ordered.attempts;
    this.dueAt = ordered.due_at ? new Date(ordered.due_at) : undefined;
    this.cause = ordered.cause;
    this.signal = signal;
    const write =
      (level: Level): Log =>
      (message, fields = {}) =>
        report.line(level, message, fields);
    this.log = {
      debug: write("debug"),
      info: write("info"),
      warning: write("warning"),
      error: write("error"),
      critical: write("critical"),
    };
  }

  /** Report progress, from 0 to 100, and in words. */
  progress(percent?: number, message?: string): void {
    this.report.progress(percent, message);
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
    return this.activations.activate([{ manifest, input, key }]);
  }

  /** Activate several dependents: all or none. */
  activateMany(wanted: Iterable<Wanted>): Promise<void> {
    return this.activations.activate([...wanted]);
  }

  /** Whether the run should stop. */
  get cancelled(): boolean {
    return this.signal.aborted;
  }
}
