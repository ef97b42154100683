/** One run of a job's body, and what came of it. */

import { context as contexts, propagation, SpanStatusCode, trace } from "@opentelemetry/api";

import { Context } from "./context.js";
import type { Event, Failure, OrderedRun } from "./protocol.js";
import { OUTPUT_LIMIT } from "./protocol.js";
import type { Lease } from "./lease.js";
import type { Report } from "./report.js";
import { storable } from "./text.js";

const STACK_LIMIT = 16 * 1024;
const MESSAGE_LIMIT = 4 * 1024;
const TIMEOUT_SECONDS = 1200;
const GRACE_SECONDS = 30;

/** A job's body. What it returns is the run's output, and has to be JSON. */
export type Handler<Input = unknown, Output = unknown> = (
  context: Context,
  input: Input,
) => Output | Promise<Output>;

/** Thrown by a body that knows that trying again would not help. */
export class Fatal extends Error {
  override name = "Fatal";
}

export type StopReason = "cancelled" | "timed_out" | "worker_stopped" | "lost_contact" | "released";

type Ended = { kind: "returned"; output: unknown } | { kind: "threw"; error: unknown };

export class Execution {
  private readonly stopper = new AbortController();
  private stopping: { reason: StopReason; why: string } | undefined;
  private readonly context: Context;
  private traceparent: string | undefined;

  constructor(
    private readonly handler: Handler,
    readonly ordered: OrderedRun,
    private readonly lease: Lease,
    private readonly report: Report,
  ) {
    this.context = new Context(ordered, lease.order.job, this.stopper.signal, report);
    this.traceparent = ordered.traceparent ?? undefined;
  }

  /** Ask the body to end early; the first reason given is the one that counts. */
  stop(reason: StopReason, why = ""): void {
    if (this.stopping !== undefined) return;
    this.stopping = { reason, why };
    this.stopper.abort(new Error(why || reason));
  }

  /** Run to the end; none if the lease was taken away and there is nothing to tell. */
  async run(): Promise<Event | undefined> {
    const carrier = { traceparent: this.ordered.traceparent ?? "" };
    const parent = propagation.extract(contexts.active(), carrier);
    const attributes = {
      "headway.job": this.lease.order.job,
      "headway.run": this.ordered.run,
      "headway.attempt": this.ordered.attempt,
    };
    const span = trace.getTracer("headway-worker").startSpan("run", { attributes }, parent);
    const inside = trace.setSpan(parent, span);
    this.traceparent = traceparentOf(inside) ?? this.traceparent;
    try {
      const ended = await contexts.with(inside, () => this.attempt());
      const failure = ended?.data["failure"] as Failure | undefined;
      if (failure !== undefined) {
        span.setStatus({ code: SpanStatusCode.ERROR, message: failure.kind });
      }
      return ended;
    } finally {
      span.end();
    }
  }

  private async attempt(): Promise<Event | undefined> {
    const seconds = this.ordered.timeout_seconds ?? TIMEOUT_SECONDS;
    const clock = after(seconds, () => this.stop("timed_out"));
    try {
      const body = this.body();
      const ended = await Promise.race([body, this.graceIsOver()]);
      return this.outcome(ended);
    } finally {
      clock.clear();
      this.report.close();
    }
  }

  private async body(): Promise<Ended> {
    try {
      return { kind: "returned", output: await this.handler(this.context, this.ordered.input) };
    } catch (error) {
      return { kind: "threw", error };
    }
  }

  /** Nothing, once the body was asked to stop and had its time to do so. */
  private graceIsOver(): Promise<undefined> {
    const seconds = this.ordered.cancel_grace_seconds ?? GRACE_SECONDS;
    return new Promise((resolve) => {
      const wait = () => after(seconds, () => resolve(undefined));
      if (this.stopper.signal.aborted) wait();
      else this.stopper.signal.addEventListener("abort", wait, { once: true });
    });
  }

  /** A body that was to hand back its run, and came to its end all the same, counts. */
  private outcome(ended: Ended | undefined): Event | undefined {
    const reason = this.stopping?.reason;
    if (reason === "cancelled" || reason === "timed_out" || reason === "released") {
      return this.stopped(reason);
    }
    if (ended === undefined) return reason === undefined ? undefined : this.stopped(reason);
    if (ended.kind === "returned") return this.returned(ended.output);
    const gaveUp = reason !== undefined && isAbort(ended.error, this.stopper.signal);
    return gaveUp ? this.stopped(reason) : this.threw(ended.error);
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
      return this.failed({ kind: "output_not_json", message: String(error), retryable: false });
    }
    if (encoded === undefined || encoded.includes("\\u0000")) {
      const message =
        encoded === undefined
          ? `the output is a ${typeof output}, which is not JSON`
          : "the output holds a NUL character, which cannot be stored";
      return this.failed({ kind: "output_not_json", message, retryable: false });
    }
    const size = Buffer.byteLength(encoded);
    if (size > OUTPUT_LIMIT) {
      const message = `the output has ${size} bytes, more than ${OUTPUT_LIMIT}`;
      return this.failed({ kind: "output_too_large", message, retryable: false });
    }
    return this.event("run.completed", { output: JSON.parse(encoded) });
  }

  private threw(error: unknown): Event {
    const known = error instanceof Error;
    return this.failed({
      kind: known ? error.name || error.constructor.name : "Error",
      message: known ? error.message : String(error),
      stack: known ? (error.stack ?? "") : "",
      retryable: !(error instanceof Fatal),
    });
  }

  private failed(failure: Partial<Failure> & { kind: string }): Event {
    return this.event("run.failed", {
      failure: {
        kind: failure.kind,
        message: storable(failure.message ?? "").slice(0, MESSAGE_LIMIT),
        stack: storable(failure.stack ?? "").slice(-STACK_LIMIT),
        retryable: failure.retryable ?? true,
      },
    });
  }

  private event(kind: string, data: Record<string, unknown>): Event {
    return this.lease.event(kind, data, this.ordered, this.traceparent);
  }
}

/** Whether an error is what came of the signal that the body was given. */
function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error instanceof Error && error.name === "AbortError");
}

function traceparentOf(context: ReturnType<typeof contexts.active>): string | undefined {
  const carrier: Record<string, string> = {};
  propagation.inject(context, carrier);
  return carrier["traceparent"];
}

/** The longest that a timer of Node can wait, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Call something after so many seconds, even more than a timer can wait at once. */
function after(seconds: number, call: () => void): { clear: () => void } {
  let left = seconds * 1000;
  let timer: NodeJS.Timeout;
  const wait = (): void => {
    const now = Math.min(left, LONGEST_TIMER);
    left -= now;
    // What is still awaited when the worker has ended must not keep the process.
    timer = setTimeout(left > 0 ? wait : call, now).unref();
  };
  wait();
  return { clear: () => clearTimeout(timer) };
}
