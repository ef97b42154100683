/** Reports why orders of a job cannot be fetched: at once, then once a minute while it lasts. */

import { ConsumerMissing } from "./broker.js";

const AGAIN_MILLISECONDS = 60_000;
/** A consumer may be missing for a moment: until the job is declared, and after a loss. */
const MISSING_MILLISECONDS = 10_000;

export class FetchTrouble {
  private since: number | undefined;
  private said = "";
  private saidAt = -Infinity;

  constructor(
    private readonly job: string,
    private readonly onTrouble: (message: string) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Orders can be fetched. */
  over(): void {
    this.since = undefined;
    this.said = "";
    this.saidAt = -Infinity;
  }

  report(error: unknown): void {
    const now = this.now();
    this.since ??= now;
    if (error instanceof ConsumerMissing && now - this.since < MISSING_MILLISECONDS) return;
    const reason = error instanceof Error ? error.message : String(error);
    if (reason === this.said && now - this.saidAt < AGAIN_MILLISECONDS) return;
    this.said = reason;
    this.saidAt = now;
    this.onTrouble(`job ${this.job}: cannot fetch orders: ${reason}`);
  }
}
