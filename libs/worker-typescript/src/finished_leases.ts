/**
 * The leases that ended last, with their events.
 *
 * If the order of an ended lease is delivered again, the acknowledgement or the broker's storage was
 * lost. The worker then publishes the events again instead of running the body again.
 */

import type { Lease } from "./lease.js";

/** Bounds: how many leases with their events, of which size, and how many ids. */
const MOST_LEASES = 1_000;
const MOST_BYTES = 16 * 1024;
const MOST_NAMES = 10_000;

export class FinishedLeases {
  private readonly leases = new Map<string, Lease>();
  private readonly names = new Set<string>();

  /** Whether this process has had the lease. */
  has(lease: string): boolean {
    return this.names.has(lease);
  }

  /** Keep a lease, and forget the oldest if there are too many. */
  add(lease: Lease): void {
    const name = lease.order.lease;
    this.names.add(name);
    forgetOldest(this.names, MOST_NAMES);
    if (lease.size > MOST_BYTES) return;
    lease.forgetRuns();
    this.leases.set(name, lease);
    forgetOldest(this.leases, MOST_LEASES);
  }

  /** Republish missing events of a lease; true if its redelivered order can be acknowledged. */
  async restore(lease: string): Promise<boolean> {
    return (await this.leases.get(lease)?.restore()) ?? true;
  }
}

/** Sets and maps keep the order of insertion. */
function forgetOldest(kept: Set<string> | Map<string, unknown>, most: number): void {
  const [oldest] = kept.keys();
  if (kept.size > most && oldest !== undefined) kept.delete(oldest);
}
