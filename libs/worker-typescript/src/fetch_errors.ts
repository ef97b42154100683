/** Reports why orders of a job cannot be fetched: at once, then once a minute while it lasts. */

import { ConsumerMissing } from "./broker.js";

const REPEAT_MILLISECONDS = 60_000;
/** A consumer may be missing for a moment: until the job is declared, and after a loss. */
const MISSING_MILLISECONDS = 10_000;

export class FetchErrors {
  private since: number | undefined;
  private reported = "";
  private reportedAt = -Infinity;

  constructor(
    private readonly job: string,
    private readonly onTrouble: (message: string) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Note that orders can be fetched again. */
  reset(): void {
    this.since = undefined;
    this.reported = "";
    this.reportedAt = -Infinity;
  }

  report(error: unknown): void {
    const now = this.now();
    this.since ??= now;
    if (error instanceof ConsumerMissing && now - this.since < MISSING_MILLISECONDS) return;
    const reason = error instanceof Error ? error.message : String(error);
    if (reason === this.reported && now - this.reportedAt < REPEAT_MILLISECONDS) return;
    this.reported = reason;
    this.reportedAt = now;
    this.onTrouble(`job ${this.job}: cannot fetch orders: ${reason}`);
  }
}
