/**
 * Run the runs of one lease, one after the other, until all of them have ended.
 *
 * Events of a few milliseconds share a message, so short runs cost few messages.
 * A start may therefore not be stored yet when its body already runs.
 */

import type { Broker } from "./broker.js";
import { Execution, type Handler } from "./execution.js";
import type { Lease } from "./lease.js";
import type { Event, OrderedRun } from "./protocol.js";
import { Report } from "./report.js";

const LINGER = 5;
/** Pending events above this size are published at once, so that a message stays small enough. */
const LARGE = 128 * 1024;
/** A dispatcher that lags behind asks for renewals that it does not need. */
const RENEWAL_PAUSE = 30_000;

const NOT_STARTED = {
  worker_stopped: "the worker stopped before the run began",
  lost_contact: "the worker lost contact before the run began",
};
export type HandBack = keyof typeof NOT_STARTED;

export class LeaseRunner {
  private current: Execution | undefined;
  private readonly cancelled = new Map<string, string>();
  private handBack: HandBack | undefined;
  private pending: Event[] = [];
  private pendingBytes = 0;
  private linger: NodeJS.Timeout | undefined;
  private renewing = false;
  private flushing: Promise<boolean> = Promise.resolve(true);

  constructor(
    readonly lease: Lease,
    private readonly handler: Handler,
    private readonly broker: Broker,
    private readonly worker: string,
  ) {}

  /** The runs whose body has begun and not ended. */
  get running(): string[] {
    return this.current === undefined ? [] : [this.current.ordered.run];
  }

  /** Run all runs of the lease and publish their outcomes. */
  async run(): Promise<void> {
    const renewing = this.renew();
    try {
      for (const ordered of this.lease.order.runs) {
        if (this.lease.lost) return;
        if (!this.lease.ended.has(ordered.run)) await this.runNext(ordered);
      }
      await this.flush();
    } finally {
      clearInterval(renewing);
      clearTimeout(this.linger);
    }
  }

  /** End one run early, or never start it; the others continue. */
  cancel(run: string, reason: string): void {
    this.cancelled.set(run, reason);
    if (this.current?.ordered.run === run) this.current.stop("cancelled", reason);
  }

  /** Stop and publish nothing more, because another owner has the lease. */
  release(): void {
    this.lease.lost = true;
    this.current?.stop("released");
  }

  /** Hand back every run that has not begun. */
  startNoMore(reason: HandBack): void {
    this.handBack ??= reason;
  }

  /** Hand back all runs, the running one included. */
  stop(reason: HandBack): void {
    this.startNoMore(reason);
    this.current?.stop(reason);
  }

  private async runNext(ordered: OrderedRun): Promise<void> {
    const notStarted = this.outcomeWithoutStart(ordered);
    if (notStarted !== undefined) return this.add(notStarted);
    const report = new Report(this.broker, this.worker, this.lease.order, ordered);
    const execution = new Execution(this.handler, ordered, this.lease, this.broker, report, (event) =>
      this.flush(event),
    );
    this.current = execution;
    let outcome: Event | undefined;
    try {
      if (this.lease.order.runs.length > 1) await this.add(this.lease.started(ordered));
      outcome = await execution.run();
    } finally {
      this.current = undefined;
    }
    if (outcome !== undefined) await this.add(outcome);
  }

  /** The outcome of a run that must not start. */
  private outcomeWithoutStart(ordered: OrderedRun): Event | undefined {
    const reason = this.cancelled.get(ordered.run);
    if (reason !== undefined) {
      return this.lease.event("run.cancelled", { reason }, ordered, ordered.traceparent);
    }
    if (this.handBack === undefined) return undefined;
    const failure = { kind: this.handBack, message: NOT_STARTED[this.handBack] };
    return this.lease.event("run.failed", { failure }, ordered, ordered.traceparent);
  }

  /** Publish an event soon, together with others of the same moment. */
  private async add(event: Event): Promise<void> {
    this.pending.push(event);
    this.pendingBytes += Buffer.byteLength(JSON.stringify(event));
    const alone = this.lease.order.runs.length === 1;
    if (alone || this.pendingBytes > LARGE) await this.flush();
    else this.linger ??= setTimeout(() => void this.flush(), LINGER);
  }

  /** Publish pending events, and these; false if the lease is lost. */
  private flush(...events: Event[]): Promise<boolean> {
    clearTimeout(this.linger);
    this.linger = undefined;
    const batch = [...this.pending, ...events];
    this.pending = [];
    this.pendingBytes = 0;
    if (batch.length > 0) {
      this.flushing = this.lease.publish(...batch).then((stored) => {
        if (!stored) this.current?.stop("released");
        return stored;
      });
    }
    return this.flushing;
  }

  /** Renew the lease now, because the dispatcher knows no claim of it. */
  renewNow(): void {
    if (this.renewing || performance.now() - this.lease.publishedAt < RENEWAL_PAUSE) return;
    this.renewing = true;
    void this.flush(this.renewed()).finally(() => (this.renewing = false));
  }

  private renewed(): Event {
    return this.lease.event("lease.renewed", {});
  }

  /** Keep the last message of a long lease from expiring in the stream. */
  private renew(): NodeJS.Timeout | undefined {
    const seconds = this.lease.order.renew_seconds;
    if (!seconds) return undefined;
    const milliseconds = Math.min(seconds * 1000, 2 ** 31 - 1);
    return setInterval(() => void this.flush(this.renewed()), milliseconds);
  }
}

