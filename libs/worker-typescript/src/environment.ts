/** What the environment says, by the names that all parts of Headway have in common. */

import { readFileSync } from "node:fs";

import { credsAuthenticator, type ConnectionOptions } from "@nats-io/transport-node";

/** Where NATS is, and the credentials to show there. */
export function connectionFromEnvironment(): ConnectionOptions {
  const { HEADWAY_NATS_URL: servers = "", HEADWAY_NATS_CREDS: credentials } = process.env;
  if (!credentials) return { servers };
  return { servers, authenticator: credsAuthenticator(readFileSync(credentials)) };
}

/** A number of seconds, if one is set. */
export function secondsFromEnvironment(name: string): number | undefined {
  const given = process.env[name];
  if (!given) return undefined;
  const seconds = Number(given);
  if (Number.isFinite(seconds) && seconds >= 0) return seconds;
  throw new TypeError(`${name}: ${JSON.stringify(given)} is no number of seconds`);
}
