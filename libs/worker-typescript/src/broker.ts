/**
 * The parts of NATS that the worker uses: publish under a fence, pull orders, acknowledge them.
 * All are plain requests, so that every answer of the broker is visible.
 *
 * Nothing is sent while there is no connection. The client would buffer it and send it after a
 * reconnect: an event that was abandoned long before would then be stored.
 */

import {
  createInbox,
  headers as newHeaders,
  type Msg,
  type NatsConnection,
  type RequestOptions,
} from "@nats-io/transport-node";

import {
  EXPECTED_SEQUENCE_HEADER,
  EXPECTED_SUBJECT_HEADER,
  TRACEPARENT_HEADER,
  eventSubject,
  eventsOfLease,
  nextOrderSubject,
} from "./protocol.js";

const PUBLISH_TIMEOUT = 5_000;
/** How long the broker keeps a pull open, and how much longer to wait for its last answer. */
const PULL_EXPIRES = 5_000;
const PULL_LENIENCE = 2_000;
const NO_RESPONDERS = 503;

/** The result of a publish: stored, refused by the broker, or unknown. */
export type PublishAnswer =
  | { kind: "stored"; sequence: number }
  | { kind: "refused"; code: number; why: string }
  | { kind: "unknown"; why: string };

/** A job has no consumer: it is not declared yet, or the dispatcher is about to create it. */
export class ConsumerMissing extends Error {
  constructor(job: string) {
    super(`there is no consumer for job ${job}: is the job declared, and does a dispatcher run?`);
  }
}

export class Broker {
  private connected = true;

  /** `inboxPrefix` is that of the connection: permissions may allow no other. */
  constructor(
    readonly connection: NatsConnection,
    private readonly inboxPrefix: string,
    private readonly onTrouble: (message: string) => void,
  ) {
    void this.watch();
  }

  /** The largest message that the broker accepts. */
  get maxPayload(): number {
    return this.connection.info?.max_payload ?? 1 << 20;
  }

  /** Publish events of a lease, stored only if its last sequence is `expected`. */
  async publishFenced(
    worker: string,
    lease: string,
    body: string,
    expected: number,
    traceparent?: string,
  ): Promise<PublishAnswer> {
    const headers = newHeaders();
    headers.set(EXPECTED_SEQUENCE_HEADER, String(expected));
    headers.set(EXPECTED_SUBJECT_HEADER, eventsOfLease(lease));
    if (traceparent !== undefined) headers.set(TRACEPARENT_HEADER, traceparent);
    try {
      const options = { headers, timeout: PUBLISH_TIMEOUT };
      return readPublishAnswer(await this.request(eventSubject(lease, worker), body, options));
    } catch (error) {
      return { kind: "unknown", why: String(error) };
    }
  }

  /** Wait for one order of a job, then take more that are ready. */
  async nextOrders(job: string, howManyMore: () => number): Promise<Msg[]> {
    // Never wait for more than one: orders that such a pull brings while the slots are in use would
    // be stuck here, and no other worker could take them.
    const orders = await this.pull(job, { batch: 1, expires: PULL_EXPIRES * 1_000_000 });
    const more = orders.length > 0 ? howManyMore() : 0;
    if (more > 0) orders.push(...(await this.pull(job, { batch: more, no_wait: true })));
    return orders;
  }

  /** Acknowledge an order. */
  ack(order: Msg): void {
    this.answer(order, "+ACK");
  }

  /** Have an order delivered again, always after a delay. */
  nak(order: Msg, seconds: number): void {
    this.answer(order, `-NAK ${JSON.stringify({ delay: Math.round(seconds * 1e9) })}`);
  }

  /** Publish a message that may be lost; false if there is no connection. */
  publish(subject: string, body: string): boolean {
    if (this.connected) this.connection.publish(subject, body);
    return this.connected;
  }

  /** Send a request, and wait for the answer. */
  request(subject: string, body: string, options: RequestOptions): Promise<Msg> {
    if (!this.connected) return Promise.reject(new Error("not connected to NATS"));
    return this.connection.request(subject, body, options);
  }

  /** Pull orders, until the batch is full or the broker has no more. */
  private async pull(job: string, pull: { batch: number; [option: string]: unknown }): Promise<Msg[]> {
    if (!this.connected) throw new Error("not connected to NATS");
    const orders: Msg[] = [];
    const inbox = createInbox(this.inboxPrefix);
    // Longer than the broker waits: an order for an inbox without a subscriber would be stuck.
    const answers = this.connection.subscribe(inbox, { timeout: PULL_EXPIRES + PULL_LENIENCE });
    try {
      this.connection.publish(nextOrderSubject(job), JSON.stringify(pull), { reply: inbox });
      for await (const message of answers) {
        // Without an ack subject it is a status of the broker: no messages, or expired.
        if (!message.reply?.startsWith("$JS.ACK.")) {
          if (message.headers?.code === NO_RESPONDERS) throw new ConsumerMissing(job);
          break;
        }
        orders.push(message);
        if (orders.length === pull.batch) break;
      }
    } catch (error) {
      if (orders.length === 0) throw error;
    } finally {
      answers.unsubscribe();
    }
    return orders;
  }

  private answer(order: Msg, body: string): void {
    // Lost without a connection; the order is redelivered, and its receiver asks for the holder.
    if (this.connected && order.reply) this.connection.publish(order.reply, body);
  }

  private async watch(): Promise<void> {
    for await (const status of this.connection.status()) {
      const { type } = status;
      if (type === "disconnect" || type === "close") this.connected = false;
      if (type === "reconnect") this.connected = true;
      // For example a subject without permission, which no request reports.
      if (type === "error") this.onTrouble(`NATS: ${status.error.message}`);
    }
  }
}

function readPublishAnswer(reply: Msg): PublishAnswer {
  const answer = reply.json<{ seq?: number; error?: { err_code?: number; description?: string } }>();
  if (answer.error !== undefined) {
    const { err_code: code = 0, description: why = "" } = answer.error;
    return { kind: "refused", code, why };
  }
  if (answer.seq) return { kind: "stored", sequence: answer.seq };
  return { kind: "unknown", why: "the broker's answer has no sequence" };
}
