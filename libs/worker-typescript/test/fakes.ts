/** A broker and an order for tests that need no NATS. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import type { Broker } from "../src/broker.js";
import { readOrder, type Order } from "../src/protocol.js";

// Compiled tests lie in dist/test.
export const PACKAGE = new URL("../../", import.meta.url);
export const SAMPLES = new URL("../../proto-schemas/samples/v1/", PACKAGE);
export const SAMPLE = readFileSync(new URL("headway.run.dispatched.v1.json", SAMPLES));
export const IDENTITY = { name: "w", nonce: "n", host: "here" };

/** The golden sample of an order, with this many runs. */
export function order(count = 1): Order {
  const read = readOrder(SAMPLE);
  const [run] = read?.runs ?? [];
  assert.ok(read && run);
  read.runs = Array.from({ length: count }, (_, index) => ({ ...run, run: `r${index}`, input: index }));
  return read;
}

/** A broker that stores everything, or never answers, and its messages. */
export function broker(maxPayload = 1 << 20, answers = true): { broker: Broker; sent: string[] } {
  const sent: string[] = [];
  const publishFenced = (_worker: string, _lease: string, body: string): Promise<unknown> => {
    sent.push(body);
    const stored = { kind: "stored", sequence: sent.length };
    return answers ? Promise.resolve(stored) : new Promise(() => undefined);
  };
  const nak = (): void => void sent.push("nak");
  const publish = (): boolean => true;
  return { broker: { maxPayload, publishFenced, nak, publish } as unknown as Broker, sent };
}
