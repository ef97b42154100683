/**
 * Run the runs of one lease, one after the other, until all of them have ended.
 *
 * The events of a lease of several runs are published together, at its end or after a short time, so
 * short runs cost few messages. A start may therefore not be stored yet when its body already runs: if
 * the dispatcher takes such a lease away, it orders all of its runs again, one by one.
 */

import { setTimeout as pause } from "node:timers/promises";

import { Execution, type Handler, type Outcome } from "./execution.js";
import { splitBySize, type Lease } from "./lease.js";
import type { CompletedRun, Event, OrderedRun } from "./protocol.js";
import { jsonBytes } from "./text.js";
import { after, LONGEST_TIMER, type Timer } from "./timers.js";

/**
 * How long an event of a lease of several runs may wait for others: the first, or this much for each
 * lease that the worker runs if that is longer. So a worker publishes about a hundred messages a second.
 */
const LINGER = 50;
const LINGER_OF_EACH = 10;
/** Pending events above this size are published at once. */
const LARGE = 128 * 1024;
/** A dispatcher that lags behind asks for renewals that it does not need. */
const RENEWAL_PAUSE = 30_000;

const NOT_STARTED = {
  worker_stopped: "the worker stopped before the run began",
  lost_contact: "the worker lost contact before the run began",
  handed_back: "runs before it in its lease took too long",
};
type NotStarted = keyof typeof NOT_STARTED;
export type HandBack = Exclude<NotStarted, "handed_back">;

export class LeaseRunner {
  private current: Execution | undefined;
  private readonly cancelled = new Map<string, string>();
  private notStarted: NotStarted | undefined;
  /** The index of the run that begins next. */
  private next = 0;
  /** When the body of the current run began, and whether an event has said so. */
  private began = 0;
  private beganAt = new Date();
  private isStartReported = false;
  private completed: CompletedRun[] = [];
  private pending: Event[] = [];
  private pendingBytes = 0;
  private flushTimer: NodeJS.Timeout | undefined;
  /** Flushes in progress, and the latest. */
  private flushes = 0;
  private flushed: Promise<boolean> = Promise.resolve(true);
  private renewing = false;

  constructor(
    readonly lease: Lease,
    private readonly handler: Handler,
    /** How many leases the worker runs. */
    private readonly countLeases: () => number,
  ) {}

  /** The runs whose body has begun and not ended. */
  get running(): string[] {
    return this.current === undefined ? [] : [this.current.ordered.run];
  }

  /** Run all runs of the lease and publish their outcomes. */
  async run(): Promise<void> {
    const renewal = this.scheduleRenewal();
    const handBack = this.scheduleHandBack();
    let paused = performance.now();
    try {
      const { runs } = this.lease.order;
      while (this.next < runs.length) {
        if (this.lease.lost) return;
        // Bodies that await nothing would keep heartbeats and timers waiting for the whole lease.
        if (performance.now() - paused >= LINGER) {
          await pause(0);
          paused = performance.now();
          continue;
        }
        const ordered = runs[this.next];
        this.next += 1;
        if (ordered !== undefined && !this.lease.ended.has(ordered.run)) await this.runNext(ordered);
      }
      await this.flush();
    } finally {
      clearInterval(renewal);
      handBack?.clear();
      clearTimeout(this.flushTimer);
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
  startNoMore(reason: NotStarted): void {
    this.notStarted ??= reason;
  }

  /** Hand back all runs, the running one included. */
  stop(reason: HandBack): void {
    this.startNoMore(reason);
    this.current?.stop(reason);
  }

  private scheduleHandBack(): Timer | undefined {
    const seconds = this.lease.order.hand_back_seconds;
    return seconds && this.isShared ? after(seconds, () => this.handBack()) : undefined;
  }

  /** Hand back the runs behind the current one now, because it takes longer than expected. */
  private handBack(): void {
    this.startNoMore("handed_back");
    const { runs } = this.lease.order;
    for (const ordered of runs.slice(this.next)) {
      const outcome = this.outcomeWithoutStart(ordered);
      if (outcome !== undefined && !this.lease.ended.has(ordered.run)) this.append(outcome);
    }
    this.next = runs.length;
    void this.flush();
  }

  private async runNext(ordered: OrderedRun): Promise<void> {
    const notStarted = this.outcomeWithoutStart(ordered);
    if (notStarted !== undefined) {
      this.append(notStarted);
      return this.flushWhenDue();
    }
    const execution = new Execution(this.handler, ordered, this.lease, (event) => this.flush(event));
    this.current = execution;
    this.began = performance.now();
    this.beganAt = new Date();
    this.isStartReported = !this.isShared;
    this.flushSoon();
    let outcome: Outcome | undefined;
    try {
      outcome = await execution.run();
    } finally {
      this.current = undefined;
    }
    if (outcome === undefined) return;
    this.addOutcome(execution, outcome);
    await this.flushWhenDue();
  }

  /** Whether the lease has several runs; the start of a single one is in its claim. */
  private get isShared(): boolean {
    return this.lease.order.runs.length > 1;
  }

  private addOutcome(execution: Execution, { kind, data }: Outcome): void {
    const { ordered, seconds, traceparent } = execution;
    if (kind !== "completed") {
      if (!this.isStartReported) this.append(this.lease.started(ordered, this.beganAt));
      this.append(this.lease.event(`run.${kind}`, data, ordered, traceparent));
    } else if (this.isShared) {
      const started_at = this.beganAt.toISOString();
      const run = { run: ordered.run, started_at, seconds, output: data.output, traceparent };
      this.completed.push(run);
      this.pendingBytes += jsonBytes(run);
    } else {
      this.append(this.lease.event("run.completed", { ...data, seconds }, ordered, traceparent));
    }
  }

  /** The outcome of a run that must not start. */
  private outcomeWithoutStart(ordered: OrderedRun): Event | undefined {
    const reason = this.cancelled.get(ordered.run);
    if (reason !== undefined) {
      return this.lease.event("run.cancelled", { reason }, ordered, ordered.traceparent);
    }
    if (this.notStarted === undefined) return undefined;
    const failure = { kind: this.notStarted, message: NOT_STARTED[this.notStarted] };
    return this.lease.event("run.failed", { failure }, ordered, ordered.traceparent);
  }

  private append(event: Event): void {
    this.pending.push(event);
    this.pendingBytes += jsonBytes(event);
  }

  /** Publish at once what is large or the only outcome; other events soon, together. */
  private async flushWhenDue(): Promise<void> {
    if (!this.isShared || this.pendingBytes > LARGE) await this.flush();
    else this.flushSoon();
  }

  /** Publish after the linger, if there is anything to publish then. */
  private flushSoon(): void {
    const owesStart = this.current !== undefined && !this.isStartReported;
    const waits = owesStart || this.pending.length > 0 || this.completed.length > 0;
    if (!waits || this.flushTimer !== undefined || this.flushes > 0) return;
    const linger = Math.max(LINGER, this.countLeases() * LINGER_OF_EACH);
    this.flushTimer = setTimeout(() => void this.flush(), linger);
  }

  /** Publish everything that is not published, and these; false if the lease is lost. */
  private flush(...events: Event[]): Promise<boolean> {
    clearTimeout(this.flushTimer);
    this.flushTimer = undefined;
    const batch = [...this.takeEvents(), ...events];
    if (batch.length > 0) {
      this.flushes += 1;
      this.flushed = this.lease.publish(...batch).then((stored) => {
        this.flushes -= 1;
        if (!stored) this.current?.stop("released");
        else this.flushSoon();
        return stored;
      });
    } else {
      this.flushSoon();
    }
    return this.flushed;
  }

  /** Outcomes that are not published, and the start of the current run. */
  private takeEvents(): Event[] {
    const events = this.pending;
    if (this.completed.length > 0) {
      for (const runs of splitBySize(this.completed, LARGE)) {
        const traceparent = runs.at(-1)?.traceparent;
        events.push(this.lease.event("runs.completed", { runs }, undefined, traceparent));
      }
    }
    [this.pending, this.completed, this.pendingBytes] = [[], [], 0];
    // The end of a short run reports its start.
    const isShort = performance.now() - this.began < LINGER;
    if (this.current !== undefined && !this.isStartReported && !isShort) {
      this.isStartReported = true;
      events.push(this.lease.started(this.current.ordered, this.beganAt));
    }
    return events;
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
  private scheduleRenewal(): NodeJS.Timeout | undefined {
    const seconds = this.lease.order.renew_seconds;
    if (!seconds) return undefined;
    const milliseconds = Math.min(seconds * 1000, LONGEST_TIMER);
    return setInterval(() => void this.flush(this.renewed()), milliseconds);
  }
}
