/** A worker process: fetch, claim, run, tell; and an orderly end. */

import { setTimeout as pause } from "node:timers/promises";

import { connect, type ConnectionOptions, type Msg } from "@nats-io/transport-node";

import { Broker } from "./broker.js";
import { FetchTrouble } from "./trouble.js";
import { connectionFromEnvironment, secondsFromEnvironment } from "./environment.js";
import { HAND_BACK_SECONDS, type Handler } from "./execution.js";
import { Finished } from "./finished.js";
import { Heart } from "./heart.js";
import { newIdentity, type Identity } from "./identity.js";
import { Lease } from "./lease.js";
import { Tenure } from "./tenure.js";
import { checkName, PROTOCOL, readOrder, type Instructions, type Order } from "./protocol.js";
import { VERSION } from "./version.js";

const FAR_AWAY_SECONDS = 30;
/** As long as a heartbeat can tell it. */
const LONGEST_VERSION = 255;
/** What the last words of a lease may take, after its body was given up. */
const LAST_WORDS_SECONDS = 5;

export interface WorkerOptions {
  /** The name in subjects and in the console; without it a new one for each process. */
  name?: string;
  /** How many runs at once. */
  slots?: number;
  heartbeatSeconds?: number;
  /**
   * How long runs may take to finish after `stop()`, before they are handed back; without it
   * HEADWAY_DRAIN_SECONDS, or 30.
   */
  drainSeconds?: number;
  /** The version of your own code, by which failures are told apart. */
  codeVersion?: string;
  /** Where trouble is told; standard error if left out. */
  onTrouble?: (message: string) => void;
}

export interface JobOptions {
  /** How many runs of this job at once, if fewer than the worker has slots. */
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
  private readonly tenures = new Map<string, Tenure>();
  /** Leases whose claim is under way. */
  private readonly claiming = new Set<string>();
  private readonly finished = new Finished();
  private readonly atWork = new Set<Promise<void>>();
  private heart: Heart | undefined;
  private free: number;
  /** Slots that are kept for orders which a fetch is just taking. */
  private promised = 0;
  private slotFreed = withResolvers();
  private readonly asked = withResolvers();
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

  /** Say what runs a job; before `run`. */
  job<Input, Output>(
    name: string,
    handler: Handler<Input, Output>,
    options: JobOptions = {},
  ): this {
    checkName("job", name);
    if (this.jobs.has(name)) throw new TypeError(`the job ${name} has a handler already`);
    const most = checkNumber("concurrency", options.concurrency ?? this.slots);
    this.jobs.set(name, { handler: handler as Handler, most, used: 0 });
    return this;
  }

  /** Drain and end: fetch no more, let runs finish, hand back the rest. */
  stop(): void {
    this.draining = true;
    this.asked.resolve();
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
    // Private, so that permissions can keep others from listening to what is meant for us.
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
    const heart = new Heart(broker, {
      describe: () => this.describe(),
      obey: (instructions) => this.obey(instructions),
      onSilence: (seconds) => this.onSilence(seconds),
      onTrouble: this.onTrouble,
      seconds: this.heartbeatSeconds,
    });
    this.heart = heart;
    await heart.start(this.name);
    const fetching = [...this.jobs].map(([name, job]) => this.serve(broker, name, job));
    const closed = broker.connection.closed().then((error) => {
      throw error ?? new Error("the connection to NATS was closed");
    });
    await Promise.race([this.asked.promise, closed, ...fetching]);
    closed.catch(() => undefined);
    await this.drain(heart);
    heart.stop();
    this.stopped = true;
    await heart.beat();
    await broker.connection.flush();
  }

  /** Let runs finish; hand back those that have not begun, or do not end by the deadline. */
  private async drain(heart: Heart): Promise<void> {
    const deadline = performance.now() + this.drainSeconds * 1000;
    // Before anything is handed back: it should be ordered from somebody else.
    await heart.beat();
    const allDone = async (): Promise<void> => {
      while (this.atWork.size > 0) await Promise.allSettled([...this.atWork]);
    };
    for (const tenure of this.tenures.values()) tenure.beginNoMore("worker_stopped");
    await within(Math.max(0, deadline - performance.now()), allDone());
    for (const tenure of this.tenures.values()) tenure.stop("worker_stopped");
    await within((HAND_BACK_SECONDS + LAST_WORDS_SECONDS) * 1000, allDone());
  }

  /** Fetch orders of one job while there are free slots. */
  private async serve(broker: Broker, name: string, job: Job): Promise<void> {
    const trouble = new FetchTrouble(name, this.onTrouble);
    while (!this.draining) {
      await this.untilThereIsRoom(job);
      try {
        // Whoever drains does not wait for this; what still comes is given back.
        const orders = await this.nextOrders(broker, name, job);
        const begun = orders.map((order) => this.accept(broker, order));
        // Not one order after the other through our hands: the next beat may be answered.
        if (begun.includes("out of touch")) await pause(this.heartbeatSeconds * 1000);
        trouble.over();
      } catch (error) {
        trouble.report(error);
        await pause(300 + Math.random() * 200);
      }
    }
  }

  /** Wait for one order, then take what else is there and fits. */
  private async nextOrders(broker: Broker, name: string, job: Job): Promise<Msg[]> {
    let share = 0;
    try {
      return await broker.nextOrders(name, () => {
        // One slot is for the order that is here, and one for what each other job waits for.
        const free = this.free - this.promised - this.jobs.size;
        share = Math.max(0, Math.min(free, this.room(job) - 1));
        this.promised += share;
        return share;
      });
    } finally {
      this.promised -= share;
    }
  }

  private async untilThereIsRoom(job: Job): Promise<void> {
    // No race with a promise that lasts as long as the worker: it would keep each of them.
    while (this.room(job) <= 0 && !this.draining) await this.slotFreed.promise;
  }

  /** How many more leases of a job may begin here. */
  private room(job: Job): number {
    return Math.min(this.free, job.most - job.used);
  }

  /** Begin with an order if there is a free slot; give a surplus back. */
  private accept(broker: Broker, message: Msg): "out of touch" | undefined {
    const order = readOrder(message.data);
    const job = order && this.jobs.get(order.job);
    if (order === undefined || job === undefined) {
      this.onTrouble(`an order on ${message.subject} that this worker cannot read`);
      broker.nak(message, FAR_AWAY_SECONDS);
    } else if (this.finished.has(order.lease)) {
      this.keep(this.answerAgain(broker, message, order));
    } else if (this.tenures.has(order.lease)) {
      broker.ack(message);
    } else if (this.room(job) <= 0 || this.draining || this.claiming.has(order.lease)) {
      // One that comes again during its own claim would be answered with "mine", and run twice.
      broker.nak(message, 0.2 + Math.random() * 0.2);
    } else if (wouldStop(order, this.heart?.silence() ?? 0)) {
      broker.nak(message, this.heartbeatSeconds + Math.random());
      return "out of touch";
    } else {
      this.free -= 1;
      job.used += 1;
      this.claiming.add(order.lease);
      const done = this.carryOut(broker, message, order, job).finally(() => {
        this.free += 1;
        job.used -= 1;
        this.slotFreed.resolve();
        this.slotFreed = withResolvers();
      });
      this.keep(done);
    }
    return undefined;
  }

  /** Do not end before this has. */
  private keep(task: Promise<void>): void {
    this.atWork.add(task);
    void task.finally(() => this.atWork.delete(task));
  }

  /** An order of a lease that has ended here came again: the broker may have lost our words. */
  private async answerAgain(broker: Broker, message: Msg, order: Order): Promise<void> {
    if (await this.finished.seeTo(order.lease)) broker.ack(message);
    else broker.nak(message, 1 + Math.random());
  }

  /** One lease from its claim to its last run's outcome. */
  private async carryOut(broker: Broker, message: Msg, order: Order, job: Job): Promise<void> {
    const lease = new Lease(broker, order, this.identity);
    try {
      const claim = await lease.claim();
      if (claim === "undecided") return broker.nak(message, 1 + Math.random());
      if (claim === "gone") return broker.ack(message);
      const tenure = new Tenure(lease, job.handler, broker, this.name);
      this.tenures.set(order.lease, tenure);
      this.claiming.delete(order.lease);
      if (this.draining) tenure.beginNoMore("worker_stopped");
      broker.ack(message);
      await tenure.serve();
    } catch (error) {
      this.onTrouble(`lease ${order.lease}: ${String(error)}`);
    } finally {
      this.claiming.delete(order.lease);
      if (this.tenures.delete(order.lease)) this.finished.add(lease);
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
      leases: [...this.tenures.keys()],
      runs: [...this.tenures.values()].flatMap((tenure) => tenure.running),
      draining: this.draining,
      stopped: this.stopped,
      sent_at: new Date().toISOString(),
    };
  }

  private obey(instructions: Instructions): void {
    for (const cancel of instructions.cancel ?? []) {
      this.tenures.get(cancel.lease)?.cancel(cancel.run, cancel.reason ?? "");
    }
    for (const release of instructions.release ?? []) {
      const tenure = this.tenures.get(release.lease);
      if (tenure === undefined) continue;
      this.onTrouble(`lease ${release.lease} is no longer ours: ${release.reason}`);
      tenure.release();
    }
    for (const lease of instructions.renew ?? []) this.tenures.get(lease)?.renewNow();
    for (const { lease, message } of instructions.warnings ?? []) {
      this.onTrouble(`lease ${lease}: the dispatcher says: ${message}`);
    }
    if (instructions.drain) this.stop();
  }

  /** No dispatcher has answered for so long; after the orphan timeout contact is lost. */
  private onSilence(seconds: number): void {
    for (const tenure of this.tenures.values()) {
      if (wouldStop(tenure.lease.order, seconds)) tenure.stop("lost_contact");
    }
  }
}

/** Whether the runs of an order are not to go on after such a silence, nor to begin. */
function wouldStop(order: Order, silence: number): boolean {
  const { orphan_timeout_seconds: patience = 60, on_lost_contact: then } = order;
  return silence >= patience && then !== "continue";
}

function checkNumber(what: string, number: number): number {
  if (Number.isInteger(number) && number >= 1) return number;
  throw new TypeError(`${what}: ${number} is no number of runs: give a whole one above 0`);
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
