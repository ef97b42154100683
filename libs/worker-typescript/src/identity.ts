/** The identity of a worker process: its name, and a nonce for its lifetime. */

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { checkName } from "./protocol.js";

export interface Identity {
  name: string;
  nonce: string;
  host: string;
}

/** Create an identity, with a generated name by default. */
export function newIdentity(name?: string): Identity {
  const nonce = randomBytes(8).toString("hex");
  return {
    name: checkName("worker", name ?? `typescript-${nonce}`),
    nonce,
    host: hostname(),
  };
}
