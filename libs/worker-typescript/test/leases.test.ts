import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { mock, test } from "node:test";

import { Execution, type Handler } from "../src/execution.js";
import { FinishedLeases } from "../src/finished_leases.js";
import { Lease, splitBySize } from "../src/lease.js";
import { LeaseRunner } from "../src/lease_runner.js";
import type { CompletedRun, Event, Failure, Order } from "../src/protocol.js";
import { broker, IDENTITY, order } from "./fakes.js";

/** A lease that a runner runs with this body, and the events that it has published. */
function leaseOf(ordered: Order, handler: Handler, leases = 1) {
  const { broker: willing, sent } = broker();
  const lease = new Lease(willing, ordered, IDENTITY);
  const runner = new LeaseRunner(lease, handler, () => leases);
  const messages = (): Event[][] => sent.map((body) => JSON.parse(body));
  const events = (): Event[] => messages().flat();
  /** Wait for an event of this type, while a body runs. */
  const published = async (type: string): Promise<void> => {
    const end = performance.now() + 10_000;
    while (!events().some((event) => event.type === `headway.${type}.v1`)) {
      assert.ok(performance.now() < end, `${type} is published`);
      await pause(1);
    }
  };
  return { lease, runner, messages, events, published };
}

const types = (events: Event[]): string[] => events.map(({ type }) => type.slice("headway.".length, -3));
const runsOf = (event?: Event): CompletedRun[] => (event?.data["runs"] ?? []) as CompletedRun[];

test("completed runs of a lease are published as one event, which reports their starts", async () => {
  const { lease, runner, messages } = leaseOf(order(3), (_, input) => ({ input }));
  await runner.run();
  const [[event, ...more] = [], ...others] = messages();
  assert.ok(event);
  assert.deepEqual([types([event]), more, others], [["runs.completed"], [], []]);
  const { token, runs: ordered } = lease.order;
  assert.equal(event.subject, lease.order.lease);
  assert.deepEqual([event.data["lease"], event.data["token"]], [lease.order.lease, token]);
  assert.deepEqual(
    runsOf(event).map(({ run, output, traceparent }) => ({ run, output, traceparent })),
    ordered.map(({ run, traceparent }, input) => ({ run, output: { input }, traceparent })),
  );
  for (const { started_at, seconds } of runsOf(event)) {
    assert.ok(Math.abs(Date.parse(started_at) - Date.now()) < 60_000);
    assert.ok(seconds >= 0 && seconds < 60);
  }
});

test("the completion of an only run has the duration of its body", async () => {
  const { runner, events } = leaseOf(order(), async () => pause(20));
  await runner.run();
  assert.deepEqual(types(events()), ["run.completed"]);
  const { seconds } = events()[0]?.data as { seconds: number };
  assert.ok(seconds >= 0.015 && seconds < 60, String(seconds));
});

test("a run that fails or is cancelled has events of its own, with its start", async () => {
  const { runner, events } = leaseOf(order(4), async (_, input) => {
    if (input === 1) throw new RangeError("odd");
    if (input === 2) runner.cancel("r2", "asked");
    return null;
  });
  runner.cancel("r3", "before it began");
  await runner.run();
  assert.deepEqual(
    events().map(({ type, subject }) => [type.slice("headway.".length, -3), subject]),
    [
      ["run.started", "r1"],
      ["run.failed", "r1"],
      ["run.started", "r2"],
      ["run.cancelled", "r2"],
      ["run.cancelled", "r3"],
      ["runs.completed", order().lease],
    ],
  );
  assert.deepEqual(runsOf(events().at(-1)).map(({ run }) => run), ["r0"]);
});

test("the start of a run that takes longer than the linger is an event, once", async () => {
  const { runner, messages, events, published } = leaseOf(order(3), async (_, input) => {
    if (input !== 1) return;
    await published("run.started");
    await pause(120); // more lingers, in which there is nothing to publish
  });
  await runner.run();
  const [started, ...more] = events().filter(({ type }) => type === "headway.run.started.v1");
  assert.deepEqual([started?.subject, more], ["r1", []]);
  assert.ok(messages().length <= 3, "the completion before it, the start, and the rest");
  const [long, short] = runsOf(events().at(-1));
  assert.deepEqual([long?.run, short?.run], ["r1", "r2"]);
  assert.equal(long?.started_at, started?.time);
  assert.ok(long && long.seconds >= 0.12, "the duration is that of the body");
});

test("a short run whose lease is published meanwhile has no start of its own", async () => {
  const { runner, messages, events } = leaseOf(order(30), () => pause(5));
  await runner.run();
  assert.ok(messages().length > 1);
  const completed = events().flatMap(runsOf);
  assert.equal(completed.length, 30);
  for (const { subject } of events().filter(({ type }) => type === "headway.run.started.v1")) {
    // On a busy machine a run may not be short.
    const seconds = completed.find(({ run }) => run === subject)?.seconds ?? 0;
    assert.ok(seconds >= 0.045, `${subject} took ${seconds} s`);
  }
});

test("an event waits longer for others if the worker runs many leases", async (context) => {
  const timers = context.mock.method(globalThis, "setTimeout");
  for (const [leases, linger] of [[1, 50], [5, 50], [12, 120]] as const) {
    timers.mock.resetCalls();
    await leaseOf(order(2), () => null, leases).runner.run();
    assert.deepEqual(timers.mock.calls.map((call) => call.arguments[1]), [linger], "one for the lease");
  }
});

test("large outputs are split into several events, and published at once", async () => {
  const begun: number[] = [];
  const { runner, messages } = leaseOf(order(5), (_, input) => {
    begun.push(messages().length);
    return "x".repeat(input === 3 ? 200 * 1024 : 60 * 1024);
  });
  await runner.run();
  assert.deepEqual(begun, [0, 0, 0, 1, 2], "before the next body begins");
  assert.deepEqual(
    messages().map((events) => events.map((event) => runsOf(event).map(({ run }) => run))),
    [[["r0", "r1"], ["r2"]], [["r3"]], [["r4"]]],
  );
});

test("runs behind a slow one are handed back, and the slow one goes on", async () => {
  const begun: unknown[] = [];
  const ordered = { ...order(4), hand_back_seconds: 0.02 };
  const { lease, runner, events, published } = leaseOf(ordered, async (context, input) => {
    begun.push(input);
    if (input === 1) await published("run.failed");
    return context.cancelled;
  });
  lease.ended.add("r3");
  await runner.run();
  assert.deepEqual(begun, [0, 1]);
  const failed = events().filter(({ type }) => type === "headway.run.failed.v1");
  assert.deepEqual(failed.map(({ subject }) => subject), ["r2"]);
  assert.equal((failed[0]?.data["failure"] as Failure).kind, "handed_back");
  const completed = events().flatMap(runsOf);
  assert.deepEqual(completed.map(({ run, output }) => [run, output]), [["r0", false], ["r1", false]]);
});

test("bodies that await nothing leave the event loop its turn", async () => {
  const begun: unknown[] = [];
  const ordered = { ...order(4), hand_back_seconds: 0.02 };
  const { runner, events } = leaseOf(ordered, (_, input) => {
    begun.push(input);
    const end = performance.now() + 60;
    while (performance.now() < end);
  });
  await runner.run();
  assert.deepEqual(begun, [0], "the timer that hands back was heard after the first");
  assert.equal(types(events()).filter((type) => type === "run.failed").length, 3);
});

test("a body that has ended when it returns needs no timer, promise or report", async (context) => {
  const { lease } = leaseOf(order(), () => undefined);
  const [run] = lease.order.runs;
  assert.ok(run);
  const timers = context.mock.method(globalThis, "setTimeout");
  const execution = new Execution((_, input) => input, run, lease, async () => true);
  assert.deepEqual(await execution.run(), { kind: "completed", data: { output: 0 } });
  assert.equal(timers.mock.callCount(), 0);
  const made = ["stopper", "reporter", "activator", "clock", "abandon"] as const;
  assert.deepEqual(made.map((part) => execution[part as "signal"]), made.map(() => undefined));
});

test("a signal is aborted that is used only after the request to stop", async () => {
  const { runner } = leaseOf(order(), async (context) => {
    runner.cancel("r0", "asked");
    heard.push(context.cancelled, context.signal.aborted, (context.signal.reason as Error).message);
  });
  const heard: unknown[] = [];
  await runner.run();
  assert.deepEqual(heard, [true, true, "asked"]);
});

test("a body that was asked to stop before it began never begins", async () => {
  const body = mock.fn();
  const { lease } = leaseOf(order(), body);
  const [run] = lease.order.runs;
  assert.ok(run);
  const execution = new Execution(body, run, lease, async () => true);
  execution.stop("released");
  assert.equal(await execution.run(), undefined);
  assert.equal(body.mock.callCount(), 0);
});

test("inputs of leases that have ended are released", () => {
  const lease = new Lease(broker().broker, order(), IDENTITY);
  new FinishedLeases().add(lease);
  assert.deepEqual(lease.order.runs, []);
});

test("leases that have ended are kept up to a total size", () => {
  const finished = new FinishedLeases();
  const add = (name: string, size: number): void => {
    const lease = new Lease(broker().broker, { ...order(), lease: name }, IDENTITY);
    lease.size = size;
    finished.add(lease);
    lease.size += 1; // it publishes again
  };
  const kept = (): string[] => [...finished["leases"].keys()];
  add("a", 6 * 1024 ** 2);
  add("b", 6 * 1024 ** 2);
  add("c", 4 * 1024 ** 2);
  assert.deepEqual(kept(), ["a", "b", "c"]);
  add("d", 1);
  assert.deepEqual(kept(), ["b", "c", "d"], "the oldest goes");
  add("e", 17 * 1024 ** 2);
  assert.deepEqual(kept(), [], "not even alone");
  add("f", 16 * 1024 ** 2);
  assert.deepEqual(kept(), ["f"], "the sizes are those that were added");
  assert.ok(["a", "e", "f"].every((name) => finished.has(name)), "their ids stay known");
});

test("values are split into few parts, in their order", () => {
  const values = ["a", "b", "c", "d"].map((id) => id.repeat(400));
  assert.deepEqual(
    splitBySize(values, 1000).map((part) => part.map(([id]) => id)),
    [["a", "b"], ["c", "d"]],
  );
  assert.equal(splitBySize(values, 1).length, 4);
  assert.equal(splitBySize(values, 1 << 20).length, 1);
});
