/**
 * A lease: claim it, and publish its events under the broker's fence.
 *
 * A publish is stored, refused or unanswered. After a refusal or a missing answer the worker asks the
 * dispatcher who holds the lease: it never guesses, and never acknowledges an order that may still
 * need it.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

import type { Broker, PublishAnswer } from "./broker.js";
import type { Identity } from "./identity.js";
import {
  LEASE_QUESTION,
  RENEWED,
  WRONG_SEQUENCE,
  type Event,
  type LeaseAnswer,
  type Order,
  type OrderedRun,
} from "./protocol.js";
import { jsonBytes } from "./text.js";
import { traced } from "./tracing.js";

/** Below the ack wait of an order, so that an undecided claim is handed back in time. */
const CLAIM_PATIENCE = 20_000;
const ASK_TIMEOUT = 3_000;
const LONGEST_PAUSE = 5_000;
/** Bytes of a message that headers may take. */
const HEADERS = 4096;

export type Claim = "mine" | "gone" | "undecided";

export class Lease {
  lost = false;
  /** Runs that have an accepted outcome already. */
  readonly ended = new Set<string>();
  /** Bytes published for it, repeats included. */
  size = 0;
  /** When its last message was stored, by the monotonic clock. */
  publishedAt = performance.now();
  private sequence = 0;
  private published: Event[] = [];
  /** Each message names its predecessor, so only one can be in flight. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    readonly broker: Broker,
    readonly order: Order,
    private readonly identity: Identity,
  ) {}

  /** The name of the worker that holds it. */
  get worker(): string {
    return this.identity.name;
  }

  /** Claim the lease; for a lease of one run, report its start in the same message. */
  claim(): Promise<Claim> {
    const parents = this.order.runs.map((run) => run.traceparent);
    return traced("claim", parents, { "headway.lease": this.order.lease }, async (span, context) => {
      const claim = await this.claimOnce(context);
      span.setAttribute("headway.claim", claim);
      return claim;
    });
  }

  /**
   * Publish events of this lease; true once they are stored, false if the lease is lost. Events that
   * are too large for one message go in several, each of them fenced.
   */
  publish(...events: Event[]): Promise<boolean> {
    return this.inOrder(async () => {
      for (const part of splitBySize(events, this.broker.maxPayload - HEADERS)) {
        if (!(await this.publishPart(part))) return false;
      }
      return true;
    });
  }

  /** Republish events that the stream lost; true if nothing is missing. */
  restore(): Promise<boolean> {
    return this.inOrder(async () => {
      const holder = await this.ask();
      const wentBack = holder.answer === "mine" && (holder.sequence ?? 0) < this.sequence;
      if (holder.answer === "nothing_stored" || wentBack) {
        return this.republish([], holder.sequence ?? 0);
      }
      return ["mine", "another", "ended"].includes(holder.answer);
    });
  }

  /** Release the runs and their inputs; keep the published events. */
  forgetRuns(): void {
    this.order.runs = [];
  }

  /** The start event of a run; it starts now if no time is given. */
  started(run: OrderedRun, at?: Date): Event {
    return this.event("run.started", {}, run, run.traceparent, at);
  }

  /** Put data of this lease, or of one of its runs, into an envelope. */
  event(
    kind: string,
    data: Record<string, unknown>,
    run?: OrderedRun,
    traceparent?: string | null,
    at = new Date(),
  ): Event {
    return {
      specversion: "1.0",
      id: randomUUID(),
      source: `worker/${this.worker}`,
      type: `headway.${kind}.v1`,
      subject: run?.run ?? this.order.lease,
      time: at.toISOString(),
      ...(traceparent ? { traceparent } : {}),
      data: {
        lease: this.order.lease,
        token: this.order.token,
        nonce: this.identity.nonce,
        ...(run === undefined ? {} : { run: run.run }),
        ...data,
      },
    };
  }

  private async claimOnce(traceparent: string | undefined): Promise<Claim> {
    const { host } = this.identity;
    const events = [this.event("lease.claimed", { host }, undefined, traceparent)];
    const [only] = this.order.runs;
    if (only !== undefined && this.order.runs.length === 1) events.push(this.started(only));
    const deadline = performance.now() + CLAIM_PATIENCE;
    let expected = 0;
    while (performance.now() < deadline) {
      const answer = await this.send(events, expected);
      if (answer.kind === "stored") return this.noteStored(events, answer.sequence);
      if (answer.kind === "refused" && answer.code !== WRONG_SEQUENCE) return "undecided";
      const holder = await this.ask();
      if (holder.answer === "mine") return this.noteStored(events, holder.sequence ?? 0);
      if (holder.answer === "another" || holder.answer === "ended") return "gone";
      const behind = holder.sequence ?? 0;
      if (holder.answer === "nothing_stored" && behind !== expected) {
        expected = behind; // Only refused messages are stored there: claim behind them at once.
        continue;
      }
      await pause(200 + Math.random() * 200);
    }
    return "undecided";
  }

  private inOrder(act: () => Promise<boolean>): Promise<boolean> {
    const result = this.turn.then(act);
    this.turn = result.catch(() => undefined);
    return result;
  }

  private async publishPart(events: Event[]): Promise<boolean> {
    let wait = 200;
    while (!this.lost) {
      const answer = await this.send(events, this.sequence);
      if (answer.kind === "stored") {
        this.noteStored(events, answer.sequence);
        return true;
      }
      if (await this.resolve(events)) return true;
      if (this.lost) break;
      await pause(wait * (1 + Math.random() * 0.2));
      wait = Math.min(wait * 2, LONGEST_PAUSE);
    }
    return false;
  }

  /** Ask what a refusal or a missing answer meant; true if the events are stored after all. */
  private async resolve(events: Event[]): Promise<boolean> {
    const holder = await this.ask();
    const sequence = holder.sequence ?? 0;
    const stored = events.some((event) => holder.stored?.includes(event.id));
    switch (holder.answer) {
      case "mine":
        // The stream went back: later messages are gone.
        if (sequence < this.sequence) return this.republish(events, sequence);
        if (stored) this.noteStored(events, sequence);
        else this.sequence = sequence;
        return stored;
      case "another":
      case "ended":
        this.lost = true;
        return stored;
      case "nothing_stored":
        return this.republish(events, sequence);
      default:
        return false;
    }
  }

  /** Publish every event of the lease again, with the same ids, in few messages. */
  private async republish(events: Event[], expected: number): Promise<boolean> {
    const most = this.broker.maxPayload - HEADERS;
    for (const part of splitBySize([...this.published, ...events], most)) {
      const answer = await this.send(part, expected);
      if (answer.kind !== "stored") return false;
      expected = answer.sequence;
    }
    this.noteStored(events, expected);
    return true;
  }

  private noteStored(events: Event[], sequence: number): "mine" {
    this.published = eventsToKeep(this.published, events);
    this.sequence = sequence;
    this.publishedAt = performance.now();
    return "mine";
  }

  private async ask(): Promise<LeaseAnswer> {
    const { worker } = this;
    const question = JSON.stringify({ lease: this.order.lease, worker, nonce: this.identity.nonce });
    try {
      const reply = await this.broker.request(LEASE_QUESTION, question, { timeout: ASK_TIMEOUT });
      const answer = reply.json<LeaseAnswer>();
      for (const run of answer.ended_runs ?? []) this.ended.add(run);
      return answer;
    } catch (error) {
      return { answer: "undecided", reason: String(error) };
    }
  }

  private send(events: Event[], expected: number): Promise<PublishAnswer> {
    const body = JSON.stringify(events);
    this.size += Buffer.byteLength(body);
    const traceparent = events.at(-1)?.traceparent;
    return this.broker.publishFenced(this.worker, this.order.lease, body, expected, traceparent);
  }
}

/** The events to republish after a loss: of many renewals the latest is enough. */
export function eventsToKeep(published: Event[], events: Event[]): Event[] {
  const renews = events.some(({ type }) => type === RENEWED);
  return [...(renews ? published.filter(({ type }) => type !== RENEWED) : published), ...events];
}

/** Split values, in their order, into as few parts as possible of at most this many bytes of JSON. */
export function splitBySize<Value>(values: Value[], most: number): Value[][] {
  const parts: Value[][] = [[]];
  let size = 0;
  for (const value of values) {
    const length = jsonBytes(value) + 1;
    if (size > 0 && size + length > most) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)?.push(value);
    size += length;
  }
  return parts;
}
