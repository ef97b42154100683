/**
 * Activate dormant dependents from inside a job's body.
 *
 * The worker asks the scheduler first, which knows the dependents and their inputs. Then it publishes
 * the activation under the lease's fence, like any other event of the run. It publishes nothing that
 * the scheduler refused, and nothing after the run's outcome.
 */

import { setTimeout as pause } from "node:timers/promises";

import { ActivationRefused, ActivationUnavailable, LeaseLost } from "./errors.js";
import type { Lease } from "./lease.js";
import { ACTIVATION_QUESTION, INPUT_LIMIT, type Event, type OrderedRun } from "./protocol.js";
import { holdsNul, jsonBytes } from "./text.js";
import { traceparent } from "./tracing.js";

const KEY_LIMIT = 255;
const MANY_LIMIT = 10_000;
const TRIES = 5;
const TIMEOUT = 5_000;
/** Bytes for the envelope and the fields beside the activations. */
const ENVELOPE = 16 * 1024;

/** An activation that a body requests; the default key is its number. */
export interface Wanted {
  manifest: string;
  input?: unknown;
  key?: string | undefined;
}

interface Activation {
  manifest: string;
  key: string;
  input: unknown;
}

/** An activation that has begun. It remembers whether the body awaits its result. */
class PendingActivation implements Promise<void> {
  readonly [Symbol.toStringTag] = "PendingActivation";
  awaited = false;

  constructor(readonly ended: Promise<void>) {
    // An unawaited error fails the run at its end; it must not end the process.
    ended.catch(() => undefined);
  }

  then: Promise<void>["then"] = (onEnd, onFault) => {
    this.awaited = true;
    return this.ended.then(onEnd, onFault);
  };
  catch: Promise<void>["catch"] = (onFault) => this.then(undefined, onFault);
  finally: Promise<void>["finally"] = (onEnd) => {
    this.awaited = true;
    return this.ended.finally(onEnd);
  };
}

/** The activations of one run. */
export class Activations {
  private readonly taken = new Map<string, Set<string>>();
  private readonly begun: PendingActivation[] = [];
  private over = false;

  constructor(
    private readonly lease: Lease,
    private readonly ordered: OrderedRun,
    private readonly publish: (event: Event) => Promise<boolean>,
  ) {}

  /** Activate all of them or none; begins at once. */
  activate(requests: Wanted[]): Promise<void> {
    const activated = new PendingActivation(this.run(requests));
    this.begun.push(activated);
    return activated;
  }

  /** Wait for activations that the body has not awaited; throw if one failed. */
  async finish(): Promise<void> {
    for (const activated of this.begun) {
      if (!activated.awaited) await activated.ended;
    }
  }

  /** Drop pending activations; nothing is published after this. */
  close(): void {
    this.over = true;
  }

  private async run(requests: Wanted[]): Promise<void> {
    this.checkRunning();
    if (requests.length === 0) return;
    const { manifest } = this.ordered;
    if (!manifest) throw new ActivationRefused("only the run of a manifest can activate dependents");
    const inputs = checkRequests(requests);
    const activations = requests.map((request, index) => ({
      manifest: request.manifest,
      key: this.keyFor(request),
      input: inputs[index],
    }));
    try {
      this.checkSize(activations);
      await this.ask(manifest, activations);
      this.checkRunning();
    } catch (error) {
      // Nothing was published, so the next activation gets the same number.
      for (const { manifest: target, key } of activations) this.taken.get(target)?.delete(key);
      throw error;
    }
    const context = traceparent() ?? this.ordered.traceparent;
    const event = this.lease.event("run.activated", { activations }, this.ordered, context);
    if (!(await this.publish(event))) {
      throw new LeaseLost(`run ${this.ordered.run} was taken away from this worker`);
    }
  }

  private checkRunning(): void {
    if (this.over) {
      throw new LeaseLost(`run ${this.ordered.run} has ended and can no longer activate`);
    }
  }

  /** The requested key, or the first number that is free for the dependent. */
  private keyFor({ manifest, key }: Wanted): string {
    const taken = this.taken.get(manifest) ?? new Set();
    this.taken.set(manifest, taken);
    let chosen = key ?? "";
    for (let number = 1; key === undefined && taken.has(chosen); number += 1) chosen = String(number);
    taken.add(chosen);
    return chosen;
  }

  private checkSize(activations: Activation[]): void {
    const size = jsonBytes(activations);
    const most = this.lease.broker.maxPayload - ENVELOPE;
    if (size <= most) return;
    throw new ActivationRefused(
      `the activations have ${size} bytes together, more than ${most}: activate fewer at once`,
    );
  }

  /** Ask the scheduler whether all of them may be activated. */
  private async ask(manifest: string, activations: Activation[]): Promise<void> {
    const question = JSON.stringify({ manifest, activations });
    let trouble = "";
    for (let tried = 0; tried < TRIES && !this.over; tried += 1) {
      if (tried > 0) await pause(100 * 2 ** tried * (1 + Math.random() * 0.2));
      const answer = await this.askOnce(question);
      if (answer.problems === undefined) trouble = answer.trouble;
      else if (answer.problems.length === 0) return;
      else throw new ActivationRefused(answer.problems.join("\n"));
    }
    throw new ActivationUnavailable(
      `no scheduler answered ${TRIES} times whether ${manifest} may activate: ${trouble}`,
    );
  }

  private async askOnce(
    question: string,
  ): Promise<{ problems: string[] } | { problems?: undefined; trouble: string }> {
    try {
      const { broker } = this.lease;
      const reply = await broker.request(ACTIVATION_QUESTION, question, { timeout: TIMEOUT });
      const error = reply.headers?.get("Nats-Service-Error") ?? "";
      const code = reply.headers?.get("Nats-Service-Error-Code") ?? "";
      if (code === "400") return { problems: [error || "the scheduler refused"] };
      if (error) return { trouble: error };
      return { problems: reply.json<{ problems?: string[] }>().problems ?? [] };
    } catch (error) {
      return { trouble: String(error) };
    }
  }
}

/** Return the inputs as JSON values, or throw with every problem. */
function checkRequests(requests: Wanted[]): unknown[] {
  const problems: string[] = [];
  if (requests.length > MANY_LIMIT) {
    problems.push(`${requests.length} activations at once are more than ${MANY_LIMIT}`);
  }
  const inputs = requests.map(({ manifest, input, key }) => {
    const [value, problem] = asJson(manifest, input, key);
    if (problem !== undefined) problems.push(`${manifest}: ${problem}`);
    return value;
  });
  if (problems.length > 0) throw new ActivationRefused(problems.join("\n"));
  return inputs;
}

/** Return the input as a JSON value, and the problem of the request. */
function asJson(manifest: string, input: unknown, key?: string): [unknown, string?] {
  let encoded: string | undefined;
  try {
    encoded = JSON.stringify(input ?? null);
  } catch (error) {
    return [null, `the input cannot be written as JSON: ${String(error)}`];
  }
  if (encoded === undefined) return [null, `the input is a ${typeof input}, which is not JSON`];
  const size = Buffer.byteLength(encoded);
  if (size > INPUT_LIMIT) return [null, `the input has ${size} bytes, more than ${INPUT_LIMIT}`];
  if (key !== undefined && key.length > KEY_LIMIT) {
    return [null, `the key has ${key.length} characters, more than ${KEY_LIMIT}`];
  }
  if (holdsNul(JSON.stringify([manifest, key]) + encoded)) {
    return [null, "a NUL character cannot be stored"];
  }
  return [JSON.parse(encoded)];
}
