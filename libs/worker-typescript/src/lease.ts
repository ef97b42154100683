/**
 * A lease: claiming it, and speaking for it under the fence.
 *
 * Every publish has three ends, and each of them is handled: stored, refused, unknown. After a
 * refusal or an unknown end the dispatcher is asked whose the lease is. A worker never guesses,
 * and never acknowledges an order that may still need it.
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
import { traced } from "./tracing.js";

/** Below the ack wait of an order, so that an undecided claim is handed back in time. */
const CLAIM_PATIENCE = 20_000;
const ASK_TIMEOUT = 3_000;
const LONGEST_PAUSE = 5_000;
/** What headers may take of a message. */
const HEADERS = 4096;

export type Claim = "mine" | "gone" | "undecided";

export class Lease {
  lost = false;
  /** Runs that have an accepted outcome already. */
  readonly ended = new Set<string>();
  /** How many bytes were published for it, repeats included. */
  size = 0;
  /** When its last message was stored, by the monotonic clock. */
  spokeAt = performance.now();
  private sequence = 0;
  private told: Event[] = [];
  /** Each word names its predecessor, so only one can be on its way. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly broker: Broker,
    readonly order: Order,
    private readonly identity: Identity,
  ) {}

  /** Take the lease; for a lease of one run, its start is told in the same breath. */
  claim(): Promise<Claim> {
    const parents = this.order.runs.map((run) => run.traceparent);
    return traced("claim", parents, { "headway.lease": this.order.lease }, async (span, context) => {
      const claim = await this.claimNow(context);
      span.setAttribute("headway.claim", claim);
      return claim;
    });
  }

  /**
   * Publish events of this lease; true once they are stored, false if the lease is lost. What is too
   * much for one message goes in several, each of them fenced.
   */
  say(...events: Event[]): Promise<boolean> {
    return this.inTurn(async () => {
      for (const part of inParts(events, this.broker.maxPayload - HEADERS)) {
        if (!(await this.sayNow(part))) return false;
      }
      return true;
    });
  }

  /** Make good what was lost of a lease that has ended; true if nothing is missing. */
  tellAgain(): Promise<boolean> {
    return this.inTurn(async () => {
      const whose = await this.ask();
      const wentBack = whose.answer === "mine" && (whose.sequence ?? 0) < this.sequence;
      if (whose.answer === "nothing_stored" || wentBack) {
        return this.tellAllAgain([], whose.sequence ?? 0);
      }
      return ["mine", "another", "ended"].includes(whose.answer);
    });
  }

  /** Let go of what there was to run, inputs and all; what was said of it is kept. */
  forgetRuns(): void {
    this.order.runs = [];
  }

  /** The event that tells that a run's body begins. */
  started(run: OrderedRun): Event {
    return this.event("run.started", {}, run, run.traceparent);
  }

  /** Put data of this lease, or of one of its runs, into an envelope. */
  event(
    kind: string,
    data: Record<string, unknown>,
    run?: OrderedRun,
    traceparent?: string | null,
  ): Event {
    return {
      specversion: "1.0",
      id: randomUUID(),
      source: `worker/${this.identity.name}`,
      type: `headway.${kind}.v1`,
      subject: run?.run ?? this.order.lease,
      time: new Date().toISOString(),
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

  private async claimNow(traceparent: string | undefined): Promise<Claim> {
    const { host } = this.identity;
    const events = [this.event("lease.claimed", { host }, undefined, traceparent)];
    const [only] = this.order.runs;
    if (only !== undefined && this.order.runs.length === 1) events.push(this.started(only));
    const deadline = performance.now() + CLAIM_PATIENCE;
    let expected = 0;
    while (performance.now() < deadline) {
      const answer = await this.publish(events, expected);
      if (answer.kind === "stored") return this.hold(events, answer.sequence);
      if (answer.kind === "refused" && answer.code !== WRONG_SEQUENCE) return "undecided";
      const whose = await this.ask();
      if (whose.answer === "mine") return this.hold(events, whose.sequence ?? 0);
      if (whose.answer === "another" || whose.answer === "ended") return "gone";
      const behind = whose.sequence ?? 0;
      if (whose.answer === "nothing_stored" && behind !== expected) {
        expected = behind; // Only refused messages lie there: claim behind them at once.
        continue;
      }
      await pause(200 + Math.random() * 200);
    }
    return "undecided";
  }

  private inTurn(speak: () => Promise<boolean>): Promise<boolean> {
    const said = this.turn.then(speak);
    this.turn = said.catch(() => undefined);
    return said;
  }

  private async sayNow(events: Event[]): Promise<boolean> {
    let wait = 200;
    while (!this.lost) {
      const answer = await this.publish(events, this.sequence);
      if (answer.kind === "stored") {
        this.hold(events, answer.sequence);
        return true;
      }
      if (await this.settle(events)) return true;
      if (this.lost) break;
      await pause(wait * (1 + Math.random() * 0.2));
      wait = Math.min(wait * 2, LONGEST_PAUSE);
    }
    return false;
  }

  /** Find out what a refusal or a silence meant; true if the events are stored after all. */
  private async settle(events: Event[]): Promise<boolean> {
    const whose = await this.ask();
    const sequence = whose.sequence ?? 0;
    const stored = events.some((event) => whose.stored?.includes(event.id));
    switch (whose.answer) {
      case "mine":
        // The stream went back: what was stored since is gone with it.
        if (sequence < this.sequence) return this.tellAllAgain(events, sequence);
        if (stored) this.hold(events, sequence);
        else this.sequence = sequence;
        return stored;
      case "another":
      case "ended":
        this.lost = true;
        return stored;
      case "nothing_stored":
        return this.tellAllAgain(events, sequence);
      default:
        return false;
    }
  }

  /** The stream forgot this lease: tell all of it again, with the same ids, in few messages. */
  private async tellAllAgain(events: Event[], expected: number): Promise<boolean> {
    const most = this.broker.maxPayload - HEADERS;
    for (const part of inParts([...this.told, ...events], most)) {
      const answer = await this.publish(part, expected);
      if (answer.kind !== "stored") return false;
      expected = answer.sequence;
    }
    this.hold(events, expected);
    return true;
  }

  private hold(events: Event[], sequence: number): "mine" {
    this.told = toTellAgain(this.told, events);
    this.sequence = sequence;
    this.spokeAt = performance.now();
    return "mine";
  }

  private async ask(): Promise<LeaseAnswer> {
    const { name: worker, nonce } = this.identity;
    const question = JSON.stringify({ lease: this.order.lease, worker, nonce });
    try {
      const reply = await this.broker.request(LEASE_QUESTION, question, { timeout: ASK_TIMEOUT });
      const answer = reply.json<LeaseAnswer>();
      for (const run of answer.ended_runs ?? []) this.ended.add(run);
      return answer;
    } catch (error) {
      return { answer: "undecided", reason: String(error) };
    }
  }

  private publish(events: Event[], expected: number): Promise<PublishAnswer> {
    const body = JSON.stringify(events);
    this.size += Buffer.byteLength(body);
    const traceparent = events.at(-1)?.traceparent;
    const { name } = this.identity;
    return this.broker.publishFenced(name, this.order.lease, body, expected, traceparent);
  }
}

/** What there is to tell of a lease if all of it is lost: of many renewals the latest is enough. */
export function toTellAgain(told: Event[], events: Event[]): Event[] {
  const renews = events.some(({ type }) => type === RENEWED);
  return [...(renews ? told.filter(({ type }) => type !== RENEWED) : told), ...events];
}

/** Events in as few messages as the broker takes. */
export function inParts(events: Event[], most: number): Event[][] {
  const parts: Event[][] = [[]];
  let size = 0;
  for (const event of events) {
    const length = Buffer.byteLength(JSON.stringify(event)) + 1;
    if (size > 0 && size + length > most) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1)?.push(event);
    size += length;
  }
  return parts;
}
