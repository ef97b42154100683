/**
 * The worker protocol, version 1: subjects, headers and the shapes of messages, as described in
 * `proto-schemas/PROTOCOL.md`. No other module spells a subject.
 */

export const PROTOCOL = 1;

export const HEARTBEAT = "headway.heartbeat";
export const LEASE_QUESTION = "headway.control.dispatcher.lease";
export const ACTIVATION_QUESTION = "headway.control.scheduler.activation";

export const EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence";
export const EXPECTED_SUBJECT_HEADER = "Nats-Expected-Last-Subject-Sequence-Subject";
export const TRACEPARENT_HEADER = "traceparent";

/** The broker's error code when the lease has a newer message than expected. */
export const WRONG_SEQUENCE = 10071;

export const RENEWED = "headway.lease.renewed.v1";

export const INPUT_LIMIT = 256 * 1024;
export const OUTPUT_LIMIT = 256 * 1024;

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

/** Return the name if it can be part of a subject; otherwise throw. */
export function checkName(what: string, name: string): string {
  if (!NAME.test(name)) {
    throw new TypeError(
      `${JSON.stringify(name)} is not valid as the name of a ${what}: use 1 to 64 letters, digits, "-" or "_", ` +
        "beginning with a letter or digit",
    );
  }
  return name;
}

/** Where one worker publishes the events of one lease. */
export const eventSubject = (lease: string, worker: string): string =>
  `headway.event.${lease}.${worker}`;

/** Every event of a lease, whoever published it: the scope of the fence. */
export const eventsOfLease = (lease: string): string => `headway.event.${lease}.*`;

/** Where a worker receives cancels ahead of its next heartbeat. */
export const cancelSubject = (worker: string): string => `headway.cancel.${worker}`;

/** Where a worker publishes progress and log lines. */
export const progressSubject = (lease: string, worker: string): string =>
  `headway.progress.${lease}.${worker}`;

/** Where a worker pulls the orders of a job. */
export const nextOrderSubject = (job: string): string =>
  `$JS.API.CONSUMER.MSG.NEXT.HEADWAY_RUNS.worker-${job}`;

/** One run that a lease allows. */
export interface OrderedRun {
  run: string;
  work: string;
  round?: number;
  attempt: number;
  attempts: number;
  manifest?: string | null;
  group: string;
  cause: string;
  due_at?: string | null;
  input?: unknown;
  input_schema?: string | null;
  timeout_seconds?: number;
  cancel_grace_seconds?: number;
  traceparent?: string | null;
}

/** An order: the right to run, for the worker that claims the lease first. */
export interface Order {
  lease: string;
  token: string;
  job: string;
  runs: OrderedRun[];
  heartbeat_seconds?: number;
  orphan_timeout_seconds?: number;
  renew_seconds?: number | null;
  on_lost_contact?: string;
  /** Runs that have not begun this long after the claim are handed back. */
  hand_back_seconds?: number | null;
}

/** A completed run in `headway.runs.completed.v1`. */
export interface CompletedRun {
  run: string;
  started_at: string;
  seconds: number;
  output: unknown;
  traceparent?: string | undefined;
}

export interface Failure {
  kind: string;
  message: string;
  stack: string;
  retryable: boolean;
  /** The kinds of its base classes. */
  kinds: string[];
}

/** A CloudEvents envelope. */
export interface Event {
  specversion: "1.0";
  id: string;
  source: string;
  type: string;
  subject: string;
  time: string;
  traceparent?: string;
  data: Record<string, unknown>;
}

export interface CancelRun {
  run: string;
  lease: string;
  reason?: string;
}

export interface ReleaseLease {
  lease: string;
  reason: string;
}

export interface LeaseWarning {
  lease: string;
  message: string;
}

/** The content of a heartbeat's reply, and of a push. */
export interface Instructions {
  cancel?: CancelRun[];
  release?: ReleaseLease[];
  renew?: string[];
  warnings?: LeaseWarning[];
  drain?: boolean;
  heartbeat_seconds?: number | null;
  error?: string;
}

/** Who holds a lease, by its accepted events. */
export interface LeaseAnswer {
  answer: string;
  sequence?: number;
  stored?: string[];
  ended_runs?: string[];
  reason?: string;
}

/** Return the order in a message, or `undefined` if it is something else. */
export function readOrder(body: Uint8Array): Order | undefined {
  let read: unknown;
  try {
    read = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return undefined;
  }
  const event = (Array.isArray(read) ? read[0] : read) as Partial<Event> | undefined;
  const order = event?.data as Partial<Order> | undefined;
  const isOrder =
    event?.type === "headway.run.dispatched.v1" &&
    typeof order?.lease === "string" &&
    typeof order.token === "string" &&
    typeof order.job === "string" &&
    Array.isArray(order.runs) &&
    order.runs.length > 0;
  return isOrder ? (order as Order) : undefined;
}
