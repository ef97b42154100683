/**
 * The leases that ended last, with their events.
 *
 * If the order of an ended lease is delivered again, the acknowledgement or the broker's storage was
 * lost. The worker then publishes the events again instead of running the body again.
 */

import type { Lease } from "./lease.js";

/** Bounds: how many leases with their events, how many bytes in total, and how many ids. */
const MOST_LEASES = 1_000;
const MOST_BYTES = 16 * 1024 ** 2;
const MOST_NAMES = 10_000;

export class FinishedLeases {
  /** With the size that each lease had when it was added. */
  private readonly leases = new Map<string, { lease: Lease; size: number }>();
  private readonly names = new Set<string>();
  private bytes = 0;

  /** Whether this process has had the lease. */
  has(lease: string): boolean {
    return this.names.has(lease);
  }

  /** Keep a lease, and forget the oldest if there are too many. */
  add(lease: Lease): void {
    const name = lease.order.lease;
    this.names.add(name);
    // Sets and maps keep the order of insertion.
    const [oldestName = name] = this.names;
    if (this.names.size > MOST_NAMES) this.names.delete(oldestName);
    lease.forgetRuns();
    this.leases.set(name, { lease, size: lease.size });
    this.bytes += lease.size;
    for (const [oldest, { size }] of this.leases) {
      if (this.leases.size <= MOST_LEASES && this.bytes <= MOST_BYTES) break;
      this.leases.delete(oldest);
      this.bytes -= size;
    }
  }

  /** Republish missing events of a lease; true if its redelivered order can be acknowledged. */
  async restore(lease: string): Promise<boolean> {
    return (await this.leases.get(lease)?.lease.restore()) ?? true;
  }
}
