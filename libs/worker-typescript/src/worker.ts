/** A worker process: fetch, claim, run, tell; and an orderly end. */

import { setTimeout as pause } from "node:timers/promises";

import { connect, type ConnectionOptions, type Msg } from "@nats-io/transport-node";

import { Broker } from "./broker.js";
import { Execution, type Handler } from "./execution.js";
import { Heart } from "./heart.js";
import { newIdentity, type Identity } from "./identity.js";
import { Lease } from "./lease.js";
import { Report } from "./report.js";
import { checkName, PROTOCOL, readOrder, type Instructions, type Order } from "./protocol.js";
import { VERSION } from "./version.js";

const FAR_AWAY_SECONDS = 30;
/** How many finished leases are remembered: an order that comes again is not run again. */
const REMEMBERED = 10_000;
const LAST_WORDS = 5_000;

export interface WorkerOptions {
  /** The name in subjects and in the console; without it a new one for each process. */
  name?: string;
  /** How many runs at once. */
  slots?: number;
  heartbeatSeconds?: number;
  /** How long runs may take to finish after `stop()`, before they are handed back. */
  drainSeconds?: number;
  /** Where trouble is told; standard error if left out. */
  onTrouble?: (message: string) => void;
}

export class Worker {
  private readonly identity: Identity;
  private readonly slots: number;
  private readonly heartbeatSeconds: number;
  private readonly drainSeconds: number;
  private readonly onTrouble: (message: string) => void;
  private readonly handlers = new Map<string, Handler>();
  private readonly leases = new Map<string, Lease>();
  private readonly executions = new Map<string, Execution>();
  private readonly finished = new Set<string>();
  private readonly atWork = new Set<Promise<void>>();
  private free: number;
  private slotFreed = withResolvers();
  private readonly asked = withResolvers();
  private draining = false;
  private stopped = false;

  constructor(options: WorkerOptions = {}) {
    this.identity = newIdentity(options.name);
    this.slots = options.slots ?? 10;
    if (!Number.isInteger(this.slots) || this.slots < 1) {
      throw new TypeError(`slots: ${this.slots} is no number of runs: give a whole one above 0`);
    }
    this.free = this.slots;
    this.heartbeatSeconds = options.heartbeatSeconds ?? 3;
    this.drainSeconds = options.drainSeconds ?? 30;
    this.onTrouble = options.onTrouble ?? ((message) => console.error(`headway: ${message}`));
  }

  get name(): string {
    return this.identity.name;
  }

  /** Say what runs a job; before `run`. */
  job<Input, Output>(name: string, handler: Handler<Input, Output>): this {
    checkName("job", name);
    if (this.handlers.has(name)) throw new TypeError(`the job ${name} has a handler already`);
    this.handlers.set(name, handler as Handler);
    return this;
  }

  /** Drain and end: fetch no more, let runs finish, hand back the rest. */
  stop(): void {
    this.draining = true;
    this.asked.resolve();
  }

  /** Connect and work until `stop()`, or until SIGTERM or SIGINT. */
  async run(options: ConnectionOptions = { servers: process.env["HEADWAY_NATS_URL"] ?? "" }): Promise<void> {
    if (this.handlers.size === 0) {
      throw new TypeError("this worker has no job: call job(name, handler) before run()");
    }
    if (!options.servers?.length) {
      throw new TypeError("HEADWAY_NATS_URL is not set: set it, or give run({ servers: ... })");
    }
    const stop = (): void => this.stop();
    process.once("SIGTERM", stop).once("SIGINT", stop);
    const connection = await connect({ name: this.name, maxReconnectAttempts: -1, ...options });
    try {
      await this.work(new Broker(connection));
    } finally {
      process.off("SIGTERM", stop).off("SIGINT", stop);
      await connection.close();
    }
  }

  private async work(broker: Broker): Promise<void> {
    const heart = new Heart(broker, {
      describe: () => this.describe(),
      obey: (instructions) => this.obey(instructions),
      onSilence: (seconds) => this.onSilence(seconds),
      onTrouble: this.onTrouble,
      seconds: this.heartbeatSeconds,
    });
    await heart.start(this.name);
    const fetching = [...this.handlers.keys()].map((job) => this.serve(broker, job));
    const closed = broker.connection.closed().then((error) => {
      throw error ?? new Error("the connection to NATS was closed");
    });
    await Promise.race([this.asked.promise, closed, ...fetching]);
    closed.catch(() => undefined);
    await this.drain();
    heart.stop();
    this.stopped = true;
    await heart.beat();
    await broker.connection.flush();
  }

  /** Let runs finish; hand back those that do not by the deadline. */
  private async drain(): Promise<void> {
    const allDone = async (): Promise<void> => {
      while (this.atWork.size > 0) await Promise.allSettled([...this.atWork]);
    };
    await within(this.drainSeconds * 1000, allDone());
    for (const execution of this.executions.values()) execution.stop("worker_stopped");
    await within(LAST_WORDS, allDone());
  }

  /** Fetch orders of one job while there are free slots. */
  private async serve(broker: Broker, job: string): Promise<void> {
    while (!this.draining) {
      await this.untilASlotIsFree();
      try {
        // A share of what is free: all jobs have the slots in common.
        const share = Math.ceil(this.free / this.handlers.size);
        const accepted = broker.nextOrders(job, share).then((orders) => {
          for (const order of orders) this.accept(broker, order);
        });
        // Whoever drains does not wait for orders; what still comes is given back.
        await Promise.race([accepted, this.asked.promise]);
      } catch {
        // The dispatcher makes the consumer when it first hears of the job.
        await pause(300 + Math.random() * 200);
      }
    }
  }

  private async untilASlotIsFree(): Promise<void> {
    while (this.free <= 0 && !this.draining) {
      this.slotFreed = withResolvers();
      await Promise.race([this.slotFreed.promise, this.asked.promise]);
    }
  }

  /** Begin with an order if there is a free slot; give a surplus back. */
  private accept(broker: Broker, message: Msg): void {
    const order = readOrder(message.data);
    if (order !== undefined && (this.leases.has(order.lease) || this.finished.has(order.lease))) {
      broker.ack(message);
    } else if (this.free <= 0 || this.draining) {
      broker.nak(message, 0.2 + Math.random() * 0.2);
    } else if (order === undefined || !this.handlers.has(order.job)) {
      this.onTrouble(`an order on ${message.subject} that this worker cannot read`);
      broker.nak(message, FAR_AWAY_SECONDS);
    } else {
      this.free -= 1;
      const task = this.carryOut(broker, message, order).finally(() => {
        this.atWork.delete(task);
        this.free += 1;
        this.slotFreed.resolve();
      });
      this.atWork.add(task);
    }
  }

  /** One lease from its claim to its last run's outcome. */
  private async carryOut(broker: Broker, message: Msg, order: Order): Promise<void> {
    const lease = new Lease(broker, order, this.identity);
    try {
      const claim = await lease.claim();
      if (claim === "undecided") return broker.nak(message, 1 + Math.random());
      if (claim === "gone") return broker.ack(message);
      this.leases.set(order.lease, lease);
      broker.ack(message);
      const renewing = this.renew(lease);
      try {
        for (const index of order.runs.keys()) {
          if (!lease.lost) await this.carryOutRun(broker, lease, index);
        }
      } finally {
        renewing.clear();
      }
    } catch (error) {
      this.onTrouble(`lease ${order.lease}: ${String(error)}`);
    } finally {
      if (this.leases.delete(order.lease)) this.remember(order.lease);
    }
  }

  private async carryOutRun(broker: Broker, lease: Lease, index: number): Promise<void> {
    const ordered = lease.order.runs[index];
    const handler = this.handlers.get(lease.order.job);
    if (ordered === undefined || handler === undefined || lease.ended.has(ordered.run)) return;
    const report = new Report(broker, this.name, lease.order, ordered);
    const execution = new Execution(handler, ordered, lease, report);
    this.executions.set(ordered.run, execution);
    try {
      if (lease.order.runs.length > 1 && !(await lease.say(lease.started(ordered)))) return;
      const outcome = await execution.run();
      if (outcome !== undefined) await lease.say(outcome);
    } finally {
      this.executions.delete(ordered.run);
    }
  }

  /** Keep the last message of a long lease from expiring in the stream. */
  private renew(lease: Lease): { clear: () => void } {
    const seconds = lease.order.renew_seconds;
    if (!seconds) return { clear: () => undefined };
    const milliseconds = Math.min(seconds * 1000, 2 ** 31 - 1);
    const timer = setInterval(() => void lease.say(lease.event("lease.renewed", {})), milliseconds);
    return { clear: () => clearInterval(timer) };
  }

  private remember(lease: string): void {
    this.finished.add(lease);
    const [oldest] = this.finished;
    if (this.finished.size > REMEMBERED && oldest !== undefined) this.finished.delete(oldest);
  }

  private describe(): Record<string, unknown> {
    return {
      protocol: PROTOCOL,
      worker: this.identity.name,
      nonce: this.identity.nonce,
      host: this.identity.host,
      sdk: "headway-typescript",
      sdk_version: VERSION,
      jobs: [...this.handlers.keys()],
      slots: this.slots,
      leases: [...this.leases.keys()],
      runs: [...this.executions.keys()],
      draining: this.draining,
      stopped: this.stopped,
      sent_at: new Date().toISOString(),
    };
  }

  private obey(instructions: Instructions): void {
    for (const cancel of instructions.cancel ?? []) {
      this.executions.get(cancel.run)?.stop("cancelled", cancel.reason ?? "");
    }
    for (const release of instructions.release ?? []) {
      const lease = this.leases.get(release.lease);
      if (lease === undefined) continue;
      this.onTrouble(`lease ${release.lease} is no longer ours: ${release.reason}`);
      lease.lost = true;
      for (const { run } of lease.order.runs) this.executions.get(run)?.stop("released");
    }
    if (instructions.drain) this.stop();
  }

  /** No dispatcher has answered for so long; after the orphan timeout contact is lost. */
  private onSilence(seconds: number): void {
    for (const { order } of this.leases.values()) {
      const patience = order.orphan_timeout_seconds ?? 60;
      if (seconds < patience || order.on_lost_contact === "continue") continue;
      for (const { run } of order.runs) this.executions.get(run)?.stop("lost_contact");
    }
  }
}

interface Resolvers {
  promise: Promise<void>;
  resolve: () => void;
}

function withResolvers(): Resolvers {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

/** Wait for something, but for no longer than this. */
async function within(milliseconds: number, done: Promise<void>): Promise<void> {
  const over = new AbortController();
  await Promise.race([done, pause(milliseconds, undefined, { signal: over.signal }).catch(() => undefined)]);
  over.abort();
}
