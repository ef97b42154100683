/**
 * What a worker has said of leases that have ended, in case it was lost before anybody heard.
 *
 * An order that comes again although its lease has ended here means that its acknowledgement was
 * lost, or the broker's storage, and all that was said of the lease with it. Saying it again is
 * better than running it again.
 */

import type { Lease } from "./lease.js";

/** How many leases are kept with their words, how large these may be, and how many by name alone. */
const MOST_LEASES = 1_000;
const MOST_BYTES = 16 * 1024;
const MOST_NAMES = 10_000;

export class Finished {
  private readonly leases = new Map<string, Lease>();
  private readonly names = new Set<string>();

  /** Whether this process has had the lease. */
  has(lease: string): boolean {
    return this.names.has(lease);
  }

  /** Keep a lease; the oldest is forgotten for it. */
  add(lease: Lease): void {
    const name = lease.order.lease;
    this.names.add(name);
    forgetOldest(this.names, MOST_NAMES);
    if (lease.size > MOST_BYTES) return;
    lease.forgetRuns();
    this.leases.set(name, lease);
    forgetOldest(this.leases, MOST_LEASES);
  }

  /** An order came again: say again what is missing; true if the order can be acknowledged. */
  async seeTo(lease: string): Promise<boolean> {
    return (await this.leases.get(lease)?.tellAgain()) ?? true;
  }
}

/** Sets and maps keep the order in which things were added. */
function forgetOldest(kept: Set<string> | Map<string, unknown>, most: number): void {
  const [oldest] = kept.keys();
  if (kept.size > most && oldest !== undefined) kept.delete(oldest);
}
