/** Run a job's body once, and return its outcome as an event. */

import { SpanStatusCode } from "@opentelemetry/api";

import { Activations } from "./activations.js";
import type { Broker } from "./broker.js";
import { Context } from "./context.js";
import { failureOf } from "./failures.js";
import type { Lease } from "./lease.js";
import type { Event, Failure, OrderedRun } from "./protocol.js";
import { OUTPUT_LIMIT } from "./protocol.js";
import type { Report } from "./report.js";
import { holdsNul } from "./text.js";
import { traced } from "./tracing.js";

const TIMEOUT_SECONDS = 1200;
const GRACE_SECONDS = 30;
/** How long a stopping worker waits for a body, after the drain. */
export const HAND_BACK_SECONDS = 2;
/** Bytes for envelope and headers beside an output. */
const ENVELOPE = 8 * 1024;

/** A job's body. It returns the run's output, as JSON. */
export type Handler<Input = unknown, Output = unknown> = (
  context: Context,
  input: Input,
) => Output | Promise<Output>;

export type StopReason = "cancelled" | "timed_out" | "worker_stopped" | "lost_contact" | "released";

type Ended = { kind: "returned"; output: unknown } | { kind: "threw"; error: unknown };

export class Execution {
  private readonly stopper = new AbortController();
  private readonly hurry = new AbortController();
  private stopping: { reason: StopReason; why: string } | undefined;
  private readonly activations: Activations;
  private readonly context: Context;
  private readonly mostOutput: number;
  private traceparent: string | undefined;

  constructor(
    private readonly handler: Handler,
    readonly ordered: OrderedRun,
    private readonly lease: Lease,
    broker: Broker,
    private readonly report: Report,
    publish: (event: Event) => Promise<boolean>,
  ) {
    this.activations = new Activations(broker, lease, ordered, publish);
    const { job } = lease.order;
    this.context = new Context(ordered, job, this.stopper.signal, report, this.activations);
    // The broker may accept less than the protocol allows.
    this.mostOutput = Math.min(OUTPUT_LIMIT, broker.maxPayload - ENVELOPE);
    this.traceparent = ordered.traceparent ?? undefined;
  }

  /**
   * Ask the body to end early; the first reason counts. A stopping worker also shortens the grace of
   * a body that was asked before.
   */
  stop(reason: StopReason, why = ""): void {
    if (reason === "worker_stopped") this.hurry.abort();
    if (this.stopping !== undefined) return;
    this.stopping = { reason, why };
    this.stopper.abort(new Error(why || reason));
  }

  /** Run to the end; `undefined` if the lease was taken away. */
  run(): Promise<Event | undefined> {
    const attributes = {
      "headway.job": this.lease.order.job,
      "headway.run": this.ordered.run,
      "headway.attempt": this.ordered.attempt,
    };
    return traced("run", [this.ordered.traceparent], attributes, async (span, traceparent) => {
      this.traceparent = traceparent ?? this.traceparent;
      const ended = await this.attempt();
      const failure = ended?.data["failure"] as Failure | undefined;
      if (failure !== undefined) {
        span.setAttribute("headway.failure", failure.kind);
        span.setStatus({ code: SpanStatusCode.ERROR, message: failure.kind });
      }
      return ended;
    });
  }

  private async attempt(): Promise<Event | undefined> {
    // It never starts.
    if (this.stopping !== undefined) return this.stopped(this.stopping.reason);
    const seconds = this.ordered.timeout_seconds ?? TIMEOUT_SECONDS;
    const clock = after(seconds, () => this.stop("timed_out"));
    try {
      const ended = await Promise.race([this.body(), this.graceIsOver()]);
      return this.outcome(ended);
    } finally {
      clock.clear();
      this.activations.close();
      this.report.close();
    }
  }

  private async body(): Promise<Ended> {
    try {
      const output = await this.handler(this.context, this.ordered.input);
      await this.activations.finish();
      return { kind: "returned", output };
    } catch (error) {
      return { kind: "threw", error };
    }
  }

  /** Resolve once the body was asked to stop and its grace is over. */
  private graceIsOver(): Promise<undefined> {
    const grace = this.ordered.cancel_grace_seconds ?? GRACE_SECONDS;
    return new Promise((resolve) => {
      const over = () => resolve(undefined);
      once(this.stopper.signal, () => after(grace, over));
      once(this.hurry.signal, () => after(Math.min(grace, HAND_BACK_SECONDS), over));
    });
  }

  /** A result after a request to stop may be its consequence, so it does not count. */
  private outcome(ended: Ended | undefined): Event | undefined {
    if (this.stopping !== undefined) return this.stopped(this.stopping.reason);
    if (ended === undefined) return undefined;
    return ended.kind === "returned" ? this.returned(ended.output) : this.threw(ended.error);
  }

  private stopped(reason: StopReason): Event | undefined {
    switch (reason) {
      case "released":
        return undefined;
      case "cancelled":
        return this.event("run.cancelled", { reason: this.stopping?.why ?? "" });
      case "timed_out": {
        const seconds = this.ordered.timeout_seconds ?? TIMEOUT_SECONDS;
        return this.failed({ kind: reason, message: `the run took longer than ${seconds} s` });
      }
      case "worker_stopped":
        return this.failed({ kind: reason, message: "the worker stopped before the run ended" });
      case "lost_contact":
        return this.failed({ kind: reason, message: "the worker lost contact and stopped" });
    }
  }

  private returned(output: unknown): Event {
    let encoded: string | undefined;
    try {
      encoded = JSON.stringify(output ?? null);
    } catch (error) {
      const { message } = failureOf(error);
      return this.failed({ kind: "output_not_json", message, retryable: false });
    }
    if (encoded === undefined || holdsNul(encoded)) {
      const message =
        encoded === undefined
          ? `the output is a ${typeof output}, which is not JSON`
          : "the output holds a NUL character, which cannot be stored";
      return this.failed({ kind: "output_not_json", message, retryable: false });
    }
    const size = Buffer.byteLength(encoded);
    if (size > this.mostOutput) {
      const message = `the output has ${size} bytes, more than ${this.mostOutput}`;
      return this.failed({ kind: "output_too_large", message, retryable: false });
    }
    return this.event("run.completed", { output: JSON.parse(encoded) });
  }

  private threw(error: unknown): Event {
    return this.failed(failureOf(error));
  }

  private failed(failure: Partial<Failure> & { kind: string }): Event {
    return this.event("run.failed", { failure });
  }

  private event(kind: string, data: Record<string, unknown>): Event {
    return this.lease.event(kind, data, this.ordered, this.traceparent);
  }
}

/** Call a function when a signal is aborted, or at once if it is. */
function once(signal: AbortSignal, call: () => void): void {
  if (signal.aborted) call();
  else signal.addEventListener("abort", call, { once: true });
}

/** The longest that a timer of Node can wait, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Call a function after some seconds, even more than one timer can wait. */
function after(seconds: number, call: () => void): { clear: () => void } {
  let left = seconds * 1000;
  let timer: NodeJS.Timeout;
  const wait = (): void => {
    const now = Math.min(left, LONGEST_TIMER);
    left -= now;
    // A timer must not keep the process alive after the worker has ended.
    timer = setTimeout(left > 0 ? wait : call, now).unref();
  };
  wait();
  return { clear: () => clearTimeout(timer) };
}
