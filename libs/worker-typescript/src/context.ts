/** What a job's body is given besides its input. */

import type { Activations, Wanted } from "./activations.js";
import type { OrderedRun } from "./protocol.js";
import type { Level, Report } from "./report.js";

type Fields = Record<string, unknown>;
type Tell = (message: string, fields?: Fields) => void;

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
  /** Lines that are kept with the run: `context.log.info("fetched", { rows: 7 })`. */
  readonly log: Record<Level, Tell>;

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
    const tell =
      (level: Level): Tell =>
      (message, fields = {}) =>
        report.line(level, message, fields);
    this.log = {
      debug: tell("debug"),
      info: tell("info"),
      warning: tell("warning"),
      error: tell("error"),
      critical: tell("critical"),
    };
  }

  /** Say how far the run is, from 0 to 100, and in words. */
  progress(percent?: number, message?: string): void {
    this.report.progress(percent, message);
  }

  /**
   * Wake a dormant dependent of this run's manifest, with an input.
   *
   * It counts as soon as this resolves, whether the run then succeeds or not. `key` tells several
   * activations of one dependent apart; without it they are numbered, so that a body which is tried
   * again and does the same activates nothing twice. What is not awaited is awaited before the run's
   * outcome, and fails the run if it fails.
   */
  activate(manifest: string, input?: unknown, key?: string): Promise<void> {
    return this.activations.activate([{ manifest, input, key }]);
  }

  /** Wake several dependents: all of them, or none. */
  activateMany(wanted: Iterable<Wanted>): Promise<void> {
    return this.activations.activate([...wanted]);
  }

  /** Whether the run should stop. */
  get cancelled(): boolean {
    return this.signal.aborted;
  }
}
