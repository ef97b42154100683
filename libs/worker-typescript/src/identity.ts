/** Who a worker process is: a name, and a nonce for as long as the process lives. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { checkName } from "./protocol.js";

export interface Identity {
  name: string;
  nonce: string;
  host: string;
}

/** A new identity, with a name of its own if none is given. */
export function newIdentity(name?: string): Identity {
  const nonce = randomBytes(8).toString("hex");
  return {
    name: checkName("worker", name ?? `typescript-${nonce}`),
    nonce,
    host: hostname(),
  };
}
