/** Saying that the worker lives, and hearing what to stop. */

import type { Broker } from "./broker.js";

import { cancelSubject, HEARTBEAT, type Instructions } from "./protocol.js";

export interface HeartOptions {
  describe: () => Record<string, unknown>;
  obey: (instructions: Instructions) => void;
  /** Called with how many seconds nobody has answered. */
  onSilence: (seconds: number) => void;
  onTrouble: (message: string) => void;
  seconds: number;
}

export class Heart {
  private seconds: number;
  private lastReply = performance.now();
  private timer: NodeJS.Timeout | undefined;
  private beating = true;
  private silent = false;

  constructor(
    private readonly broker: Broker,
    private readonly options: HeartOptions,
  ) {
    this.seconds = options.seconds;
  }

  /** Beat at once and from then on; back when the first beat was answered or not. */
  async start(worker: string): Promise<void> {
    this.broker.connection.subscribe(cancelSubject(worker), {
      callback: (error, message) => {
        if (error !== null) {
          this.options.onTrouble(`cannot listen for cancels: ${error.message}`);
          return;
        }
        try {
          this.options.obey(message.json<Instructions>());
        } catch (fault) {
          this.options.onTrouble(`a cancel that cannot be read: ${String(fault)}`);
        }
      },
    });
    await this.beat();
    this.schedule();
  }

  /** Stop beating; one may still beat by hand. */
  stop(): void {
    this.beating = false;
    clearTimeout(this.timer);
  }

  /** One heartbeat. */
  async beat(): Promise<void> {
    let reply: Instructions;
    try {
      const body = JSON.stringify(this.options.describe());
      const timeout = this.seconds * 1000;
      reply = (await this.broker.request(HEARTBEAT, body, { timeout })).json<Instructions>();
    } catch (error) {
      if (!this.silent) this.options.onTrouble(`no answer to a heartbeat: ${String(error)}`);
      this.silent = true;
      this.options.onSilence(this.silence());
      return;
    }
    this.silent = false;
    this.lastReply = performance.now();
    if (reply.error) this.options.onTrouble(`the dispatcher cannot read us: ${reply.error}`);
    if (reply.heartbeat_seconds) this.seconds = reply.heartbeat_seconds;
    this.options.obey(reply);
  }

  /** For how many seconds nobody has answered. */
  silence(): number {
    return (performance.now() - this.lastReply) / 1000;
  }

  private schedule(): void {
    if (!this.beating) return;
    this.timer = setTimeout(() => {
      void this.beat().finally(() => this.schedule());
    }, this.seconds * 1000);
  }
}
