/**
 * A lease that this worker holds: its runs, one after the other, until all of them have ended.
 *
 * Events of the last few milliseconds share a message, so short runs of one lease cost few of them.
 * A start may therefore not be stored yet when its body already runs.
 */

import type { Broker } from "./broker.js";
import { Execution, type Handler } from "./execution.js";
import type { Lease } from "./lease.js";
import type { Event, OrderedRun } from "./protocol.js";
import { Report } from "./report.js";

const LINGER = 5;
/** Above this, what was gathered is said at once, so that a message stays below what the broker takes. */
const LARGE = 128 * 1024;
/** A dispatcher that lags behind asks for renewals that it does not need. */
const RENEWAL_PAUSE = 30_000;

const NEVER_BEGUN = {
  worker_stopped: "the worker stopped before the run began",
  lost_contact: "the worker lost contact before the run began",
};
export type HandBack = keyof typeof NEVER_BEGUN;

export class Tenure {
  private current: Execution | undefined;
  private readonly cancelled = new Map<string, string>();
  private handBack: HandBack | undefined;
  private unsaid: Event[] = [];
  private unsaidBytes = 0;
  private linger: NodeJS.Timeout | undefined;
  private renewing = false;
  private saying: Promise<boolean> = Promise.resolve(true);

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

  /** Run all runs of the lease and tell their outcomes. */
  async serve(): Promise<void> {
    const renewing = this.renew();
    try {
      for (const ordered of this.lease.order.runs) {
        if (this.lease.lost) return;
        if (!this.lease.ended.has(ordered.run)) await this.serveOne(ordered);
      }
      await this.flush();
    } finally {
      clearInterval(renewing);
      clearTimeout(this.linger);
    }
  }

  /** End one run early, or never begin it; the others go on. */
  cancel(run: string, reason: string): void {
    this.cancelled.set(run, reason);
    if (this.current?.ordered.run === run) this.current.stop("cancelled", reason);
  }

  /** The lease is no longer ours: stop, and say nothing more. */
  release(): void {
    this.lease.lost = true;
    this.current?.stop("released");
  }

  /** Hand back every run that has not begun. */
  beginNoMore(reason: HandBack): void {
    this.handBack ??= reason;
  }

  /** Hand back all runs, the one that runs included. */
  stop(reason: HandBack): void {
    this.beginNoMore(reason);
    this.current?.stop(reason);
  }

  private async serveOne(ordered: OrderedRun): Promise<void> {
    const unbegun = this.whyNotBegin(ordered);
    if (unbegun !== undefined) return this.tell(unbegun);
    const report = new Report(this.broker, this.worker, this.lease.order, ordered);
    const execution = new Execution(this.handler, ordered, this.lease, this.broker, report, (event) =>
      this.flush(event),
    );
    this.current = execution;
    let outcome: Event | undefined;
    try {
      if (this.lease.order.runs.length > 1) await this.tell(this.lease.started(ordered));
      outcome = await execution.run();
    } finally {
      this.current = undefined;
    }
    if (outcome !== undefined) await this.tell(outcome);
  }

  /** The outcome of a run that is not to begin at all. */
  private whyNotBegin(ordered: OrderedRun): Event | undefined {
    const reason = this.cancelled.get(ordered.run);
    if (reason !== undefined) {
      return this.lease.event("run.cancelled", { reason }, ordered, ordered.traceparent);
    }
    if (this.handBack === undefined) return undefined;
    const failure = { kind: this.handBack, message: NEVER_BEGUN[this.handBack] };
    return this.lease.event("run.failed", { failure }, ordered, ordered.traceparent);
  }

  /** Say an event soon, together with its neighbours in time. */
  private async tell(event: Event): Promise<void> {
    this.unsaid.push(event);
    this.unsaidBytes += Buffer.byteLength(JSON.stringify(event));
    const alone = this.lease.order.runs.length === 1;
    if (alone || this.unsaidBytes > LARGE) await this.flush();
    else this.linger ??= setTimeout(() => void this.flush(), LINGER);
  }

  /** Say what was gathered, and this; false if the lease is lost. */
  private flush(...events: Event[]): Promise<boolean> {
    clearTimeout(this.linger);
    this.linger = undefined;
    const said = [...this.unsaid, ...events];
    this.unsaid = [];
    this.unsaidBytes = 0;
    if (said.length > 0) {
      this.saying = this.lease.say(...said).then((stored) => {
        if (!stored) this.current?.stop("released");
        return stored;
      });
    }
    return this.saying;
  }

  /** Say now that the lease is held: the dispatcher knows no claim of it. */
  renewNow(): void {
    if (this.renewing || performance.now() - this.lease.spokeAt < RENEWAL_PAUSE) return;
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

