/** Settings from the environment, with the names that all parts of Headway share. */

import { readFileSync } from "node:fs";

import { credsAuthenticator, type ConnectionOptions } from "@nats-io/transport-node";

/**
 * The servers of NATS and the login: user and password (or token) of the URL, else the credentials
 * file. nats.js itself reads neither several URLs in one string nor a user in a URL.
 */
export function connectionFromEnvironment(): ConnectionOptions {
  const { HEADWAY_NATS_CREDS: credentials } = process.env;
  const urls = valueOrFile("HEADWAY_NATS_URL");
  const parts = urls.split(",").map((url) => /^\s*(\w+:\/\/)?(?:(.*)@)?(.*?)\s*$/.exec(url));
  const servers = parts.map((part) => (part?.[1] ?? "") + (part?.[3] ?? "")).filter(Boolean);
  const login = parts.map((part) => part?.[2]).find(Boolean);
  if (login !== undefined) return { servers, ...signIn(login) };
  if (!credentials) return { servers };
  return { servers, authenticator: credsAuthenticator(readFileSync(credentials)) };
}

/** Read a setting, or the file that `NAME_FILE` names (for secrets). */
function valueOrFile(name: string): string {
  const { [name]: value, [`${name}_FILE`]: path } = process.env;
  if (value || !path) return value ?? "";
  return readFileSync(path, "utf8").trim();
}

/** `user:password` or `token`, percent-decoded. */
function signIn(login: string): ConnectionOptions {
  const [, user, password] = /^([^:]*)(?::(.*))?$/.exec(login) ?? [];
  if (password === undefined) return { token: decodeURIComponent(login) };
  return { user: decodeURIComponent(user ?? ""), pass: decodeURIComponent(password) };
}

/** A number of seconds, if one is set. */
export function secondsFromEnvironment(name: string): number | undefined {
  const given = process.env[name];
  if (!given) return undefined;
  const seconds = Number(given);
  if (Number.isFinite(seconds) && seconds >= 0) return seconds;
  throw new TypeError(`${name}: ${JSON.stringify(given)} is not a number of seconds: use a number of 0 or more`);
}
