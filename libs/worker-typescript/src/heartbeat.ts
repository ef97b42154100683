/** Send heartbeats, and receive instructions to cancel, release or drain. */

import type { Broker } from "./broker.js";

import { cancelSubject, HEARTBEAT, type Instructions } from "./protocol.js";

export interface HeartbeatOptions {
  describe: () => Record<string, unknown>;
  obey: (instructions: Instructions) => void;
  /** Called with the seconds since the last answer. */
  onSilence: (seconds: number) => void;
  onTrouble: (message: string) => void;
  seconds: number;
}

export class HeartbeatSender {
  private seconds: number;
  private lastReply = performance.now();
  private timer: NodeJS.Timeout | undefined;
  private beating = true;
  private silent = false;

  constructor(
    private readonly broker: Broker,
    private readonly options: HeartbeatOptions,
  ) {
    this.seconds = options.seconds;
  }

  /** Send the first heartbeat, and schedule the next ones. */
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
          this.options.onTrouble(`malformed cancel: ${String(fault)}`);
        }
      },
    });
    await this.beat();
    this.schedule();
  }

  /** Stop the schedule; `beat` still works. */
  stop(): void {
    this.beating = false;
    clearTimeout(this.timer);
  }

  /** Send one heartbeat. */
  async beat(): Promise<void> {
    let reply: Instructions;
    try {
      const body = JSON.stringify(this.options.describe());
      const timeout = this.seconds * 1000;
      reply = (await this.broker.request(HEARTBEAT, body, { timeout })).json<Instructions>();
    } catch (error) {
      if (!this.silent) this.options.onTrouble(`heartbeat was not answered: ${String(error)}`);
      this.silent = true;
      this.options.onSilence(this.silence());
      return;
    }
    this.silent = false;
    this.lastReply = performance.now();
    if (reply.error) this.options.onTrouble(`dispatcher cannot read the heartbeat: ${reply.error}`);
    if (reply.heartbeat_seconds) this.seconds = reply.heartbeat_seconds;
    this.options.obey(reply);
  }

  /** Seconds since the last answer. */
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
