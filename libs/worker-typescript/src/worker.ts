/** A worker process: fetch orders, claim leases, run them, and drain at the end. */

import { setTimeout as pause } from "node:timers/promises";

import { connect, type ConnectionOptions, type Msg } from "@nats-io/transport-node";

import { Broker } from "./broker.js";
import { FetchErrors } from "./fetch_errors.js";
import { connectionFromEnvironment, secondsFromEnvironment } from "./environment.js";
import { HAND_BACK_SECONDS, type Handler } from "./execution.js";
import { FinishedLeases } from "./finished_leases.js";
import { HeartbeatSender } from "./heartbeat.js";
import { newIdentity, type Identity } from "./identity.js";
import { Lease } from "./lease.js";
import { LeaseRunner } from "./lease_runner.js";
import { checkName, PROTOCOL, readOrder, type Instructions, type Order } from "./protocol.js";
import { VERSION } from "./version.js";

const FAR_AWAY_SECONDS = 30;
/** The limit of a heartbeat. */
const LONGEST_VERSION = 255;
/** How long the last events of a lease may take, after its body was abandoned. */
const LAST_EVENTS_SECONDS = 5;

export interface WorkerOptions {
  /** The name in subjects and in the console; by default a new one for each process. */
  name?: string;
  /** Runs at once. */
  slots?: number;
  heartbeatSeconds?: number;
  /**
   * How long runs may take to finish after `stop()`, before they are handed back; by default
   * HEADWAY_DRAIN_SECONDS, or 30.
   */
  drainSeconds?: number;
  /** The version of your own code; failures are grouped by it. */
  codeVersion?: string;
  /** Receives errors outside of bodies; by default they go to standard error. */
  onTrouble?: (message: string) => void;
}

export interface JobOptions {
  /** Runs of this job at once, if fewer than the worker has slots. */
  concurrency?: number;
}

interface Job {
  handler: Handler;
  most: number;
  used: number;
}

export class Worker {
  private readonly identity: Identity;
  private readonly slots: number;
  private readonly heartbeatSeconds: number;
  private readonly drainSeconds: number;
  private readonly onTrouble: (message: string) => void;
  private readonly codeVersion: string;
  private readonly jobs = new Map<string, Job>();
  private readonly runners = new Map<string, LeaseRunner>();
  /** Leases whose claim is pending. */
  private readonly claiming = new Set<string>();
  private readonly finished = new FinishedLeases();
  private readonly tasks = new Set<Promise<void>>();
  private heartbeats: HeartbeatSender | undefined;
  private free: number;
  /** Slots reserved for orders that a fetch is just taking. */
  private reserved = 0;
  private slotFreed = withResolvers();
  private readonly stopRequested = withResolvers();
  private draining = false;
  private stopped = false;

  constructor(options: WorkerOptions = {}) {
    this.identity = newIdentity(options.name);
    this.slots = checkNumber("slots", options.slots ?? 10);
    this.free = this.slots;
    this.heartbeatSeconds = options.heartbeatSeconds ?? 3;
    this.drainSeconds = options.drainSeconds ?? secondsFromEnvironment("HEADWAY_DRAIN_SECONDS") ?? 30;
    this.codeVersion = (options.codeVersion ?? "").slice(0, LONGEST_VERSION);
    this.onTrouble = options.onTrouble ?? ((message) => console.error(`headway: ${message}`));
  }

  get name(): string {
    return this.identity.name;
  }

  /** Register the handler of a job; call it before `run`. */
  job<Input, Output>(
    name: string,
    handler: Handler<Input, Output>,
    options: JobOptions = {},
  ): this {
    checkName("job", name);
    if (this.jobs.has(name)) throw new TypeError(`job ${name} already has a handler`);
    const most = checkNumber("concurrency", options.concurrency ?? this.slots);
    this.jobs.set(name, { handler: handler as Handler, most, used: 0 });
    return this;
  }

  /** Drain and end: fetch no more orders, let runs finish, hand back the rest. */
  stop(): void {
    this.draining = true;
    this.stopRequested.resolve();
    this.slotFreed.resolve();
  }

  /** Connect and work until `stop()`, or until SIGTERM or SIGINT. */
  async run(options: ConnectionOptions = connectionFromEnvironment()): Promise<void> {
    if (this.jobs.size === 0) {
      throw new TypeError("this worker has no job: call job(name, handler) before run()");
    }
    if (!options.servers?.length) {
      throw new TypeError("HEADWAY_NATS_URL is not set: set it, or give run({ servers: ... })");
    }
    const stop = (): void => this.stop();
    process.once("SIGTERM", stop).once("SIGINT", stop);
    // A prefix of its own, so that permissions can keep other workers from reading the replies.
    const inboxPrefix = options.inboxPrefix ?? `_INBOX.${this.name}`;
    const connection = await connect({
      name: this.name,
      maxReconnectAttempts: -1,
      ...options,
      inboxPrefix,
    });
    try {
      await this.work(new Broker(connection, inboxPrefix, this.onTrouble));
    } finally {
      process.off("SIGTERM", stop).off("SIGINT", stop);
      await connection.close();
    }
  }

  private async work(broker: Broker): Promise<void> {
    const heartbeats = new HeartbeatSender(broker, {
      describe: () => this.describe(),
      obey: (instructions) => this.obey(instructions),
      onSilence: (seconds) => this.onSilence(seconds),
      onTrouble: this.onTrouble,
      seconds: this.heartbeatSeconds,
    });
    this.heartbeats = heartbeats;
    await heartbeats.start(this.name);
    const fetching = [...this.jobs].map(([name, job]) => this.serve(broker, name, job));
    const closed = broker.connection.closed().then((error) => {
      throw error ?? new Error("the connection to NATS was closed");
    });
    await Promise.race([this.stopRequested.promise, closed, ...fetching]);
    closed.catch(() => undefined);
    await this.drain(heartbeats);
    heartbeats.stop();
    this.stopped = true;
    await heartbeats.beat();
    await broker.connection.flush();
  }

  /** Let runs finish; hand back those that have not begun or do not end in time. */
  private async drain(heartbeats: HeartbeatSender): Promise<void> {
    const deadline = performance.now() + this.drainSeconds * 1000;
    // At once: until the dispatcher knows of the drain, it orders handed-back runs from this worker again.
    await heartbeats.beat();
    const allDone = async (): Promise<void> => {
      while (this.tasks.size > 0) await Promise.allSettled([...this.tasks]);
    };
    for (const runner of this.runners.values()) runner.startNoMore("worker_stopped");
    await within(Math.max(0, deadline - performance.now()), allDone());
    for (const runner of this.runners.values()) runner.stop("worker_stopped");
    await within((HAND_BACK_SECONDS + LAST_EVENTS_SECONDS) * 1000, allDone());
  }

  /** Fetch orders of one job while there are free slots. */
  private async serve(broker: Broker, name: string, job: Job): Promise<void> {
    const errors = new FetchErrors(name, this.onTrouble);
    while (!this.draining) {
      await this.waitForRoom(job);
      try {
        // A drain does not wait for this; later orders are refused.
        const orders = await this.nextOrders(broker, name, job);
        const begun = orders.map((order) => this.accept(broker, order));
        // Do not cycle through all orders: the next heartbeat may be answered.
        if (begun.includes("lost contact")) await pause(this.heartbeatSeconds * 1000);
        errors.reset();
      } catch (error) {
        errors.report(error);
        await pause(300 + Math.random() * 200);
      }
    }
  }

  /** Wait for one order, then take more that are ready and fit. */
  private async nextOrders(broker: Broker, name: string, job: Job): Promise<Msg[]> {
    let share = 0;
    try {
      return await broker.nextOrders(name, () => {
        // One slot is for this order, and one for the pull of each other job.
        const free = this.free - this.reserved - this.jobs.size;
        share = Math.max(0, Math.min(free, this.room(job) - 1));
        this.reserved += share;
        return share;
      });
    } finally {
      this.reserved -= share;
    }
  }

  private async waitForRoom(job: Job): Promise<void> {
    // No race with a promise that lives as long as the worker: it would retain every race.
    while (this.room(job) <= 0 && !this.draining) await this.slotFreed.promise;
  }

  /** The number of leases of a job that may still begin here. */
  private room(job: Job): number {
    return Math.min(this.free, job.most - job.used);
  }

  /** Begin an order if there is a free slot; otherwise nak it. */
  private accept(broker: Broker, message: Msg): "lost contact" | undefined {
    const order = readOrder(message.data);
    const job = order && this.jobs.get(order.job);
    if (order === undefined || job === undefined) {
      this.onTrouble(`malformed order on ${message.subject}`);
      broker.nak(message, FAR_AWAY_SECONDS);
    } else if (this.finished.has(order.lease)) {
      this.track(this.handleRedelivery(broker, message, order));
    } else if (this.runners.has(order.lease)) {
      broker.ack(message);
    } else if (this.room(job) <= 0 || this.draining || this.claiming.has(order.lease)) {
      // An order that is redelivered during its own claim would be claimed and run twice.
      broker.nak(message, 0.2 + Math.random() * 0.2);
    } else if (wouldStop(order, this.heartbeats?.silence() ?? 0)) {
      broker.nak(message, this.heartbeatSeconds + Math.random());
      return "lost contact";
    } else {
      this.free -= 1;
      job.used += 1;
      this.claiming.add(order.lease);
      const done = this.runLease(broker, message, order, job).finally(() => {
        this.free += 1;
        job.used -= 1;
        this.slotFreed.resolve();
        this.slotFreed = withResolvers();
      });
      this.track(done);
    }
    return undefined;
  }

  /** Keep the worker running until a task has ended. */
  private track(task: Promise<void>): void {
    this.tasks.add(task);
    void task.finally(() => this.tasks.delete(task));
  }

  /** Handle the redelivered order of an ended lease: the broker may have lost its events. */
  private async handleRedelivery(broker: Broker, message: Msg, order: Order): Promise<void> {
    if (await this.finished.restore(order.lease)) broker.ack(message);
    else broker.nak(message, 1 + Math.random());
  }

  /** Handle one lease from its claim to the outcome of its last run. */
  private async runLease(broker: Broker, message: Msg, order: Order, job: Job): Promise<void> {
    const lease = new Lease(broker, order, this.identity);
    try {
      const claim = await lease.claim();
      if (claim === "undecided") return broker.nak(message, 1 + Math.random());
      if (claim === "gone") return broker.ack(message);
      const runner = new LeaseRunner(lease, job.handler, () => this.runners.size);
      this.runners.set(order.lease, runner);
      this.claiming.delete(order.lease);
      if (this.draining) runner.startNoMore("worker_stopped");
      broker.ack(message);
      await runner.run();
    } catch (error) {
      this.onTrouble(`lease ${order.lease}: ${String(error)}`);
    } finally {
      this.claiming.delete(order.lease);
      if (this.runners.delete(order.lease)) this.finished.add(lease);
    }
  }

  private describe(): Record<string, unknown> {
    const limited = [...this.jobs].filter(([, job]) => job.most < this.slots);
    return {
      protocol: PROTOCOL,
      worker: this.identity.name,
      nonce: this.identity.nonce,
      host: this.identity.host,
      sdk: "headway-typescript",
      sdk_version: VERSION,
      code_version: this.codeVersion,
      jobs: [...this.jobs.keys()],
      slots: this.slots,
      concurrency: Object.fromEntries(limited.map(([name, job]) => [name, job.most])),
      leases: [...this.runners.keys()],
      runs: [...this.runners.values()].flatMap((runner) => runner.running),
      draining: this.draining,
      stopped: this.stopped,
      sent_at: new Date().toISOString(),
    };
  }

  private obey(instructions: Instructions): void {
    for (const cancel of instructions.cancel ?? []) {
      this.runners.get(cancel.lease)?.cancel(cancel.run, cancel.reason ?? "");
    }
    for (const release of instructions.release ?? []) {
      const runner = this.runners.get(release.lease);
      if (runner === undefined) continue;
      this.onTrouble(`lease ${release.lease} was taken away: ${release.reason}`);
      runner.release();
    }
    for (const lease of instructions.renew ?? []) this.runners.get(lease)?.renewNow();
    for (const { lease, message } of instructions.warnings ?? []) {
      this.onTrouble(`lease ${lease}: dispatcher warning: ${message}`);
    }
    if (instructions.drain) this.stop();
  }

  /** Stop runs once no dispatcher has answered for their orphan timeout. */
  private onSilence(seconds: number): void {
    for (const runner of this.runners.values()) {
      if (wouldStop(runner.lease.order, seconds)) runner.stop("lost_contact");
    }
  }
}

/** Whether runs of an order must stop, or not begin, after this silence. */
function wouldStop(order: Order, silence: number): boolean {
  const { orphan_timeout_seconds: patience = 60, on_lost_contact: then } = order;
  return silence >= patience && then !== "continue";
}

function checkNumber(what: string, number: number): number {
  if (Number.isInteger(number) && number >= 1) return number;
  throw new TypeError(`${what}: ${number} is not valid: use a whole number above 0`);
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

/** Wait for a promise, but for no longer than this. */
async function within(milliseconds: number, done: Promise<void>): Promise<void> {
  const over = new AbortController();
  await Promise.race([done, pause(milliseconds, undefined, { signal: over.signal }).catch(() => undefined)]);
  over.abort();
}
