/**
 * What the worker needs of NATS: to publish under a fence, to pull one order, to answer for it.
 * All of it is plain requests, so that every answer of the broker is seen as it is.
 *
 * Nothing is sent while there is no connection. The client would keep it and send it when it is
 * connected again: a word that was given up long before would then be stored.
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
/** How long the broker keeps a pull open, and how much longer we wait for its last answer. */
const PULL_EXPIRES = 5_000;
const PULL_LENIENCE = 2_000;
const NO_RESPONDERS = 503;

/** The three ends of a publish: stored, refused by the broker, or unknown. */
export type PublishAnswer =
  | { kind: "stored"; sequence: number }
  | { kind: "refused"; code: number; why: string }
  | { kind: "unknown"; why: string };

/** There is no consumer of a job: nobody has declared it yet, or the dispatcher is about to make it. */
export class ConsumerMissing extends Error {
  constructor(job: string) {
    super(`there is no consumer for job ${job}: is the job declared, and does a dispatcher run?`);
  }
}

export class Broker {
  private connected = true;

  /** `inboxPrefix` as the connection has it: permissions may let us listen nowhere else. */
  constructor(
    readonly connection: NatsConnection,
    private readonly inboxPrefix: string,
    private readonly onTrouble: (message: string) => void,
  ) {
    void this.watch();
  }

  /** How large a message the broker takes. */
  get maxPayload(): number {
    return this.connection.info?.max_payload ?? 1 << 20;
  }

  /** Publish events of a lease, stored only if nobody has spoken for it since `expected`. */
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

  /** Wait for one order of a job, then take what else is there; none if none came. */
  async nextOrders(job: string, howManyMore: () => number): Promise<Msg[]> {
    // Never wait for more than one: what such a pull brings while the slots are taken would lie
    // here unseen, and no other worker could have it.
    const orders = await this.pull(job, { batch: 1, expires: PULL_EXPIRES * 1_000_000 });
    const more = orders.length > 0 ? howManyMore() : 0;
    if (more > 0) orders.push(...(await this.pull(job, { batch: more, no_wait: true })));
    return orders;
  }

  /** The order is dealt with. */
  ack(order: Msg): void {
    this.answer(order, "+ACK");
  }

  /** The order is for somebody else, or for later; always with a delay. */
  nak(order: Msg, seconds: number): void {
    this.answer(order, `-NAK ${JSON.stringify({ delay: Math.round(seconds * 1e9) })}`);
  }

  /** Tell something that may be lost; false if there is nobody to tell. */
  tell(subject: string, body: string): boolean {
    if (this.connected) this.connection.publish(subject, body);
    return this.connected;
  }

  /** Ask, and wait for the answer. */
  request(subject: string, body: string, options: RequestOptions): Promise<Msg> {
    if (!this.connected) return Promise.reject(new Error("there is no connection to NATS"));
    return this.connection.request(subject, body, options);
  }

  /** What a pull brings, until it has brought all or the broker has said that there is no more. */
  private async pull(job: string, pull: { batch: number; [option: string]: unknown }): Promise<Msg[]> {
    if (!this.connected) throw new Error("there is no connection to NATS");
    const orders: Msg[] = [];
    const inbox = createInbox(this.inboxPrefix);
    // Longer than the broker waits: an order that came to an inbox we have left would lie unseen.
    const answers = this.connection.subscribe(inbox, { timeout: PULL_EXPIRES + PULL_LENIENCE });
    try {
      this.connection.publish(nextOrderSubject(job), JSON.stringify(pull), { reply: inbox });
      for await (const message of answers) {
        // Without a subject to answer on it is the broker's own word: no messages, or expired.
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

  private answer(order: Msg, word: string): void {
    // Lost without a connection; the order then comes again, and whoever gets it asks.
    if (this.connected && order.reply) this.connection.publish(order.reply, word);
  }

  private async watch(): Promise<void> {
    for await (const status of this.connection.status()) {
      const { type } = status;
      if (type === "disconnect" || type === "close") this.connected = false;
      if (type === "reconnect") this.connected = true;
      // Such as a subject that we may not publish to: nobody else hears of it.
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
