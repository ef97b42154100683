/** Run a job's body once, and return its outcome as an event. */

import { SpanStatusCode } from "@opentelemetry/api";

import { Activations } from "./activations.js";
import { Context, type Tools } from "./context.js";
import { failureOf } from "./failures.js";
import type { Lease } from "./lease.js";
import type { Event, Failure, OrderedRun } from "./protocol.js";
import { OUTPUT_LIMIT } from "./protocol.js";
import { Report } from "./report.js";
import { holdsNul } from "./text.js";
import { after, type Timer } from "./timers.js";
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

/** How a run ended, and the data of its event. */
export type Outcome =
  | { kind: "completed"; data: { output: unknown } }
  | { kind: "failed"; data: { failure: Partial<Failure> & { kind: string } } }
  | { kind: "cancelled"; data: { reason: string } };

type Ended = { kind: "returned"; output: unknown } | { kind: "threw"; error: unknown };

export class Execution implements Tools {
  /** How long the body took, from its first step, once it has returned. */
  seconds = 0;
  traceparent: string | undefined;
  private began = 0;
  private over = false;
  private stopping: { reason: StopReason; why: string } | undefined;
  /** Made when they are needed first: most bodies are short and need none of them. */
  private stopper: AbortController | undefined;
  private reporter: Report | undefined;
  private activator: Activations | undefined;
  private clock: Timer | undefined;
  /** Stops waiting for the body. */
  private abandon: (() => void) | undefined;

  constructor(
    private readonly handler: Handler,
    readonly ordered: OrderedRun,
    private readonly lease: Lease,
    private readonly publish: (event: Event) => Promise<boolean>,
  ) {
    this.traceparent = ordered.traceparent ?? undefined;
  }

  get signal(): AbortSignal {
    if (this.stopper === undefined) {
      this.stopper = new AbortController();
      this.abort();
    }
    return this.stopper.signal;
  }

  get cancelled(): boolean {
    return this.stopping !== undefined;
  }

  get report(): Report {
    return (this.reporter ??= new Report(this.lease, this.ordered));
  }

  get activations(): Activations {
    this.activator ??= new Activations(this.lease, this.ordered, this.publish);
    if (this.over) this.activator.close();
    return this.activator;
  }

  /**
   * Ask the body to end early; the first reason counts. A stopping worker also shortens the grace of
   * a body that was asked before.
   */
  stop(reason: StopReason, why = ""): void {
    const grace = this.ordered.cancel_grace_seconds ?? GRACE_SECONDS;
    if (this.stopping === undefined) {
      this.stopping = { reason, why };
      this.abort();
      this.abandonAfter(grace);
    }
    if (reason === "worker_stopped") this.abandonAfter(Math.min(grace, HAND_BACK_SECONDS));
  }

  private abort(): void {
    if (this.stopping === undefined) return;
    this.stopper?.abort(new Error(this.stopping.why || this.stopping.reason));
  }

  private abandonAfter(seconds: number): void {
    if (this.abandon === undefined) return;
    this.clock?.clear();
    this.clock = after(seconds, this.abandon);
  }

  /** Run to the end; `undefined` if the lease was taken away. */
  run(): Promise<Outcome | undefined> {
    const attributes = {
      "headway.job": this.lease.order.job,
      "headway.run": this.ordered.run,
      "headway.attempt": this.ordered.attempt,
    };
    return traced("run", [this.ordered.traceparent], attributes, async (span, traceparent) => {
      this.traceparent = traceparent ?? this.traceparent;
      const outcome = await this.attempt();
      if (outcome?.kind === "failed") {
        const { kind } = outcome.data.failure;
        span.setAttribute("headway.failure", kind);
        span.setStatus({ code: SpanStatusCode.ERROR, message: kind });
      }
      return outcome;
    });
  }

  private async attempt(): Promise<Outcome | undefined> {
    // It never starts.
    if (this.stopping !== undefined) return this.stopped(this.stopping.reason);
    try {
      const body = this.begin();
      return this.outcome(body instanceof Promise ? await this.inTime(body) : body);
    } finally {
      this.over = true;
      this.clock?.clear();
      this.activator?.close();
      this.reporter?.close();
    }
  }

  /** Call the body; there is a promise only if the body or an activation is not done. */
  private begin(): Ended | Promise<Ended> {
    this.began = performance.now();
    try {
      const job = this.lease.order.job;
      const output = this.handler(new Context(this.ordered, job, this), this.ordered.input);
      if (isThenable(output) || this.activator !== undefined) return this.finish(output);
      this.noteSeconds();
      return { kind: "returned", output };
    } catch (error) {
      return { kind: "threw", error };
    }
  }

  private async finish(body: unknown): Promise<Ended> {
    try {
      const output = await body;
      this.noteSeconds();
      await this.activator?.finish();
      return { kind: "returned", output };
    } catch (error) {
      return { kind: "threw", error };
    }
  }

  private noteSeconds(): void {
    this.seconds = (performance.now() - this.began) / 1000;
  }

  /** Wait for the body; after a request to stop, for no longer than its grace. */
  private inTime(body: Promise<Ended>): Promise<Ended | undefined> {
    const seconds = this.ordered.timeout_seconds ?? TIMEOUT_SECONDS;
    this.clock = after(seconds, () => this.stop("timed_out"));
    return new Promise((resolve) => {
      this.abandon = () => resolve(undefined);
      void body.then(resolve);
    });
  }

  /** A result after a request to stop may be its consequence, so it does not count. */
  private outcome(ended: Ended | undefined): Outcome | undefined {
    if (this.stopping !== undefined) return this.stopped(this.stopping.reason);
    if (ended === undefined) return undefined;
    return ended.kind === "returned" ? this.returned(ended.output) : failed(failureOf(ended.error));
  }

  private stopped(reason: StopReason): Outcome | undefined {
    switch (reason) {
      case "released":
        return undefined;
      case "cancelled":
        return { kind: "cancelled", data: { reason: this.stopping?.why ?? "" } };
      case "timed_out": {
        const seconds = this.ordered.timeout_seconds ?? TIMEOUT_SECONDS;
        return failed({ kind: reason, message: `the run took longer than ${seconds} s` });
      }
      case "worker_stopped":
        return failed({ kind: reason, message: "the worker stopped before the run ended" });
      case "lost_contact":
        return failed({ kind: reason, message: "the worker lost contact before the run ended" });
    }
  }

  private returned(output: unknown): Outcome {
    let encoded: string | undefined;
    try {
      encoded = JSON.stringify(output ?? null);
    } catch (error) {
      const { message } = failureOf(error);
      return failed({ kind: "output_not_json", message, retryable: false });
    }
    if (encoded === undefined || holdsNul(encoded)) {
      const message =
        encoded === undefined
          ? `the output is a ${typeof output}, which is not JSON`
          : "the output holds a NUL character, which cannot be stored";
      return failed({ kind: "output_not_json", message, retryable: false });
    }
    // The broker may accept less than the protocol allows.
    const most = Math.min(OUTPUT_LIMIT, this.lease.broker.maxPayload - ENVELOPE);
    const size = Buffer.byteLength(encoded);
    if (size > most) {
      const message = `the output has ${size} bytes, more than ${most}`;
      return failed({ kind: "output_too_large", message, retryable: false });
    }
    // A copy, because the body may go on to change its own.
    return { kind: "completed", data: { output: JSON.parse(encoded) } };
  }
}

function failed(failure: Partial<Failure> & { kind: string }): Outcome {
  return { kind: "failed", data: { failure } };
}

function isThenable(value: unknown): boolean {
  return typeof (value as PromiseLike<unknown> | null | undefined)?.then === "function";
}
