/**
 * Waking dormant dependents from inside a job's body.
 *
 * The scheduler is asked first, because it knows which dependents there are and what they take; then
 * the activation is published under the lease's fence like any other word of the run. Nothing is
 * published that the scheduler has not agreed to, and nothing after the run's outcome.
 */

import { setTimeout as pause } from "node:timers/promises";

import type { Broker } from "./broker.js";
import { ActivationRefused, ActivationUnavailable, LeaseLost } from "./errors.js";
import type { Lease } from "./lease.js";
import { ACTIVATION_QUESTION, INPUT_LIMIT, type Event, type OrderedRun } from "./protocol.js";
import { holdsNul } from "./text.js";
import { traceparent } from "./tracing.js";

const KEY_LIMIT = 255;
const MANY_LIMIT = 10_000;
const TRIES = 5;
const TIMEOUT = 5_000;
/** What the envelope and the other fields may take up beside the activations themselves. */
const ENVELOPE = 16 * 1024;

/** An activation as a body asks for it; without a key it gets one by its number. */
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

/** An activation that has begun. It is remembered whether the body looks at how it ended. */
class Activated implements Promise<void> {
  readonly [Symbol.toStringTag] = "Activated";
  awaited = false;

  constructor(readonly ended: Promise<void>) {
    // Whoever does not look is told at the end of the run, and not by the end of the process.
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
  private readonly begun: Activated[] = [];
  private over = false;

  constructor(
    private readonly broker: Broker,
    private readonly lease: Lease,
    private readonly ordered: OrderedRun,
    private readonly say: (event: Event) => Promise<boolean>,
  ) {}

  /** Wake all of them or none; begins at once. */
  activate(wanted: Wanted[]): Promise<void> {
    const activated = new Activated(this.activateNow(wanted));
    this.begun.push(activated);
    return activated;
  }

  /** Wait for what the body has begun and not awaited; throws if any of it failed. */
  async finish(): Promise<void> {
    for (const activated of this.begun) {
      if (!activated.awaited) await activated.ended;
    }
  }

  /** Give up what is still under way: after this nothing more is published. */
  close(): void {
    this.over = true;
  }

  private async activateNow(wanted: Wanted[]): Promise<void> {
    this.checkThatItRuns();
    if (wanted.length === 0) return;
    const { manifest } = this.ordered;
    if (!manifest) throw new ActivationRefused("only a manifest's run can activate");
    const inputs = checked(wanted);
    const activations = wanted.map((one, index) => ({
      manifest: one.manifest,
      key: this.keyFor(one),
      input: inputs[index],
    }));
    try {
      this.checkSize(activations);
      await this.ask(manifest, activations);
      this.checkThatItRuns();
    } catch (error) {
      // Nothing was published, so the next one that is gets the same number.
      for (const one of activations) this.taken.get(one.manifest)?.delete(one.key);
      throw error;
    }
    const context = traceparent() ?? this.ordered.traceparent;
    const told = this.lease.event("run.activated", { activations }, this.ordered, context);
    if (!(await this.say(told))) {
      throw new LeaseLost(`run ${this.ordered.run} was taken away from this worker`);
    }
  }

  private checkThatItRuns(): void {
    if (this.over) {
      throw new LeaseLost(`run ${this.ordered.run} is over and can activate nothing any more`);
    }
  }

  /** The key asked for, or the first number that this run has not used for the target. */
  private keyFor({ manifest, key }: Wanted): string {
    const taken = this.taken.get(manifest) ?? new Set();
    this.taken.set(manifest, taken);
    let chosen = key ?? "";
    for (let number = 1; key === undefined && taken.has(chosen); number += 1) chosen = String(number);
    taken.add(chosen);
    return chosen;
  }

  private checkSize(activations: Activation[]): void {
    const size = Buffer.byteLength(JSON.stringify(activations));
    const most = this.broker.maxPayload - ENVELOPE;
    if (size <= most) return;
    throw new ActivationRefused(
      `the activations have ${size} bytes together, more than ${most}: activate fewer at once`,
    );
  }

  /** Ask the scheduler whether all of them may be woken. */
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
      const reply = await this.broker.request(ACTIVATION_QUESTION, question, { timeout: TIMEOUT });
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

/** The inputs as JSON values; throws all that is wrong with them. */
function checked(wanted: Wanted[]): unknown[] {
  const problems: string[] = [];
  if (wanted.length > MANY_LIMIT) {
    problems.push(`${wanted.length} activations at once are more than ${MANY_LIMIT}`);
  }
  const inputs = wanted.map(({ manifest, input, key }) => {
    const [value, problem] = asJson(manifest, input, key);
    if (problem !== undefined) problems.push(`${manifest}: ${problem}`);
    return value;
  });
  if (problems.length > 0) throw new ActivationRefused(problems.join("\n"));
  return inputs;
}

/** An input as JSON has it, and what is wrong with the activation. */
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
