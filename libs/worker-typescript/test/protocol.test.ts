import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import type { Broker } from "../src/broker.js";
import { connectionFromEnvironment, secondsFromEnvironment } from "../src/environment.js";
import { Fatal } from "../src/errors.js";
import { failureOf } from "../src/failures.js";
import { Lease, eventsToKeep } from "../src/lease.js";
import { checkName, readOrder, type Event } from "../src/protocol.js";
import { holdsNul } from "../src/text.js";
import { VERSION } from "../src/version.js";
import { ConsumerMissing } from "../src/broker.js";
import { FetchErrors } from "../src/fetch_errors.js";
import { Worker } from "../src/worker.js";
import { broker, IDENTITY, order, PACKAGE, SAMPLE, SAMPLES } from "./fakes.js";

function event(id: string, size: number): Event {
  return {
    specversion: "1.0",
    id,
    source: "worker/w",
    type: "headway.run.completed.v1",
    subject: "x",
    time: "2027-01-01T00:00:00Z",
    data: { output: "x".repeat(size) },
  };
}

test("what is too much for one message is published in several", async () => {
  const { broker: small, sent } = broker(4096 + 1200);
  const lease = new Lease(small, order(), IDENTITY);
  assert.ok(await lease.publish(event("a", 400), event("b", 400), event("c", 400)));
  assert.deepEqual(sent.map((body) => JSON.parse(body).length), [2, 1]);
});

test("an order that comes again during its own claim is nacked", () => {
  const worker = new Worker({ name: "w" }).job(order().job, () => undefined);
  const { broker: silent, sent } = broker(1 << 20, false);
  const message = { data: SAMPLE, subject: "x" } as unknown as Parameters<Worker["accept"]>[1];
  worker["accept"](silent, message);
  worker["accept"](silent, message);
  assert.equal(sent.filter((body) => body === "nak").length, 1);
});

test("fetching leaves nothing behind with what lasts as long as the worker", async () => {
  const worker = new Worker({ name: "w" }).job("job", () => undefined);
  const { promise } = worker["stopRequested"];
  let kept = 0;
  const then = promise.then.bind(promise);
  promise.then = ((onEnd) => {
    kept += 1;
    return then(onEnd);
  }) as typeof promise.then;
  let fetches = 0;
  const nextOrders = async (): Promise<never[]> => {
    fetches += 1;
    if (fetches === 100) worker.stop();
    return [];
  };
  const job = worker["jobs"].get("job");
  assert.ok(job);
  await worker["serve"]({ nextOrders } as unknown as Broker, "job", job);
  assert.deepEqual([fetches, kept], [100, 0]);
});

test("text about a NUL character is none", () => {
  assert.ok(holdsNul(JSON.stringify({ a: "\0" })));
  assert.ok(holdsNul(JSON.stringify("\\\0")));
  assert.ok(!holdsNul(JSON.stringify(String.raw`[\u0000-\u001f]`)));
});

test("an error that cannot say what it is is a failure all the same", () => {
  const odd = Object.assign(new Error("odd"), { name: 5, message: Object.create(null) });
  assert.equal(failureOf(odd).kind, "5");
  assert.match(failureOf(odd).message, /is not available/);
});

test("the golden sample of an order is read", () => {
  const order = readOrder(SAMPLE);
  assert.ok(order);
  assert.equal(order.runs.length, 1);
  assert.ok(order.runs[0]?.run);
});

test("other messages are not orders", () => {
  const claimed = readFileSync(new URL("headway.lease.claimed.v1.json", SAMPLES));
  for (const body of [claimed, Buffer.from("{"), Buffer.from("null"), Buffer.from("[]")]) {
    assert.equal(readOrder(body), undefined);
  }
});

test("of many renewals only the latest is kept", () => {
  const renewed = (id: string): Event => ({ ...event(id, 0), type: "headway.lease.renewed.v1" });
  let sent: Event[] = [];
  for (const one of [event("a", 0), renewed("b"), event("c", 0), renewed("d")]) {
    sent = eventsToKeep(sent, [one]);
  }
  assert.deepEqual(sent.map(({ id }) => id), ["a", "c", "d"]);
});

test("a failure names its kind, the more general ones, and whether to try again", () => {
  class NotThere extends RangeError {
    override name = "NotThere";
  }
  const { kind, kinds, message, retryable } = failureOf(new NotThere("x\0".repeat(3000)));
  assert.deepEqual([kind, kinds, retryable], ["NotThere", ["RangeError", "Error"], true]);
  assert.equal(message.length, 4096);
  assert.ok(!message.includes("\0"));
  assert.equal(failureOf(new Fatal("never")).retryable, false);
  assert.deepEqual(failureOf("just text"), {
    kind: "Error",
    message: "just text",
    stack: "",
    retryable: true,
    kinds: [],
  });
  assert.equal(failureOf(Object.create(null)).message, "its text is not available");
});

test("seconds in the environment are a number or a complaint", () => {
  process.env["SOME_SECONDS"] = "1.5";
  assert.equal(secondsFromEnvironment("SOME_SECONDS"), 1.5);
  process.env["SOME_SECONDS"] = "soon";
  assert.throws(() => secondsFromEnvironment("SOME_SECONDS"), /SOME_SECONDS: "soon" is not a number/);
  assert.equal(secondsFromEnvironment("NO_SUCH_SECONDS"), undefined);
});

test("names that cannot be part of a subject are refused with a remedy", () => {
  assert.equal(checkName("job", "resize-2"), "resize-2");
  for (const name of ["", "_mine", "a.b", "a b", "a\r\n", "*", "x".repeat(65)]) {
    assert.throws(() => checkName("job", name), /not valid as the name of a job: use 1 to 64 letters/);
  }
});

test("a worker says what is wrong with how it was made", async () => {
  assert.throws(() => new Worker({ slots: 0 }), /slots: 0 is not valid/);
  assert.throws(() => new Worker({ name: "no good" }), /not valid as the name of a worker/);
  assert.throws(() => new Worker().job("x", () => null, { concurrency: 0.5 }), /concurrency: 0.5/);
  await assert.rejects(new Worker().run(), /this worker has no job/);
  const worker = new Worker().job("resize", () => null);
  assert.throws(() => worker.job("resize", () => null), /already has a handler/);
  await assert.rejects(worker.run({ servers: "" }), /HEADWAY_NATS_URL is not set/);
});

test("the version that heartbeats report is the package's", () => {
  const described = JSON.parse(readFileSync(new URL("package.json", PACKAGE), "utf8"));
  assert.equal(VERSION, described.version);
});

test("the URL of NATS may name several servers, and a user with a password or a token", () => {
  const read = (url: string): unknown => {
    process.env["HEADWAY_NATS_URL"] = url;
    return connectionFromEnvironment();
  };
  delete process.env["HEADWAY_NATS_CREDS"];
  assert.deepEqual(read(""), { servers: [] });
  assert.deepEqual(read("nats://a:4222, b"), { servers: ["nats://a:4222", "b"] });
  assert.deepEqual(read("nats://headway:5-x%40y@127.0.0.1:4333"), {
    servers: ["nats://127.0.0.1:4333"],
    user: "headway",
    pass: "5-x@y",
  });
  assert.deepEqual(read("tls://secret@a,tls://secret@b:1"), {
    servers: ["tls://a", "tls://b:1"],
    token: "secret",
  });
  // What the URL says counts before a file, which need not even be there.
  process.env["HEADWAY_NATS_CREDS"] = "/nowhere/creds";
  assert.deepEqual(read("nats://u:p@a"), { servers: ["nats://a"], user: "u", pass: "p" });
  delete process.env["HEADWAY_NATS_CREDS"];
  delete process.env["HEADWAY_NATS_URL"];
});

test("the URL of NATS may come from a file, as secrets do", () => {
  const path = join(mkdtempSync(join(tmpdir(), "headway-")), "nats-url");
  writeFileSync(path, "nats://worker:secret@nats:4222\n");
  process.env["HEADWAY_NATS_URL_FILE"] = path;
  assert.deepEqual(connectionFromEnvironment(), {
    servers: ["nats://nats:4222"],
    user: "worker",
    pass: "secret",
  });
  delete process.env["HEADWAY_NATS_URL_FILE"];
});

test("fetch errors are reported, but not with every try", () => {
  const reports: string[] = [];
  let now = 0;
  const errors = new FetchErrors("resize", (message) => void reports.push(message), () => now);
  errors.report(new ConsumerMissing("resize")); // it may come any moment
  assert.deepEqual(reports, []);
  errors.report(new Error("TIMEOUT"));
  errors.report(new Error("TIMEOUT"));
  assert.deepEqual(reports, ["job resize: cannot fetch orders: TIMEOUT"]);
  now = 61_000;
  errors.report(new Error("TIMEOUT"));
  errors.report(new ConsumerMissing("resize"));
  assert.equal(reports.length, 3);
  assert.match(reports[2] ?? "", /no consumer for job resize/);
  errors.reset();
  errors.report(new Error("TIMEOUT"));
  assert.equal(reports.length, 4);
});
