/**
 * Progress and log lines of a run, published a few times a second.
 *
 * They travel over core NATS without a fence: they may be lost, and no decision depends on them.
 * Their size is bounded, and dropped lines are counted.
 */

import type { Lease } from "./lease.js";
import { progressSubject, type OrderedRun } from "./protocol.js";
import { holdsNul, jsonBytes, storable } from "./text.js";

export type Level = "debug" | "info" | "warning" | "error" | "critical";

const DELAY = 250;
const LINES_AT_ONCE = 100;
const LINES_LIMIT = 1000;
const LOG_BYTES_LIMIT = 256 * 1024;
const LINE_LIMIT = 4 * 1024;
const FIELDS_LIMIT = 4 * 1024;
const MESSAGE_LIMIT = 1024;

interface Line {
  number: number;
  at: string;
  level: Level;
  message: string;
  fields: Record<string, unknown>;
}

export class Report {
  private percent: number | null = null;
  private message: string | null = null;
  private lines: Line[] = [];
  private lineNumber = 0;
  private bytesLeft = LOG_BYTES_LIMIT;
  private dropped = 0;
  private number = 0;
  private changed = false;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly ordered: OrderedRun,
  ) {}

  /** How far the run is; what is left out stays as it was. */
  progress(percent?: number, message?: string): void {
    if (percent !== undefined) {
      if (Number.isNaN(percent)) throw new TypeError("progress takes a percentage from 0 to 100");
      this.percent = Math.min(Math.max(percent, 0), 100);
    }
    if (message !== undefined) this.message = cut(message, MESSAGE_LIMIT);
    this.publishSoon();
  }

  /** Keep one log line, if the run has room for it. */
  line(level: Level, message: string, fields: Record<string, unknown>): void {
    const text = cut(message, LINE_LIMIT);
    const kept = asJson(fields);
    const size = Buffer.byteLength(text) + jsonBytes(kept);
    if (this.lineNumber >= LINES_LIMIT || size > this.bytesLeft) {
      this.dropped += 1;
    } else {
      this.lineNumber += 1;
      this.bytesLeft -= size;
      const at = new Date().toISOString();
      this.lines.push({ number: this.lineNumber, at, level, message: text, fields: kept });
    }
    this.publishSoon();
  }

  /** Publish the rest, before the run's outcome. */
  close(): void {
    clearTimeout(this.timer);
    this.publish();
  }

  private publishSoon(): void {
    this.changed = true;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.publish();
    }, DELAY);
  }

  private publish(): void {
    const { broker, order, worker } = this.lease;
    while (this.changed) {
      const lines = this.lines.splice(0, LINES_AT_ONCE);
      this.changed = this.lines.length > 0;
      this.number += 1;
      const progress = {
        lease: order.lease,
        token: order.token,
        run: this.ordered.run,
        number: this.number,
        at: new Date().toISOString(),
        percent: this.percent,
        message: this.message,
        lines,
        dropped: this.dropped,
      };
      const subject = progressSubject(order.lease, worker);
      if (!broker.publish(subject, JSON.stringify(progress))) this.dropped += lines.length;
    }
  }
}

function cut(text: string, most: number): string {
  const kept = storable(text);
  return kept.length <= most ? kept : `${kept.slice(0, most - 1)}…`;
}

/** Convert fields to JSON values, if they are small enough. */
function asJson(fields: Record<string, unknown>): Record<string, unknown> {
  let encoded: string;
  try {
    encoded = JSON.stringify(fields);
  } catch (error) {
    return { fields_left_out: cut(String(error), 200) };
  }
  const size = Buffer.byteLength(encoded);
  if (size > FIELDS_LIMIT) {
    return { fields_left_out: `${size} bytes are more than ${FIELDS_LIMIT}` };
  }
  if (holdsNul(encoded)) {
    return { fields_left_out: "a NUL character cannot be stored" };
  }
  return JSON.parse(encoded);
}
