/** Errors of bodies, in the words and the limits of the protocol. */

import { Fatal } from "./errors.js";
import type { Failure } from "./protocol.js";
import { storable } from "./text.js";

const KIND_LIMIT = 255;
const KINDS_LIMIT = 32;
const MESSAGE_LIMIT = 4 * 1024;
const STACK_LIMIT = 16 * 1024;

/** Describe a thrown value as a failure, with the kinds of its base classes. */
export function failureOf(error: unknown): Failure {
  const known = error instanceof Error;
  const kind = known ? textOf(() => error.name || error.constructor.name) : "Error";
  return {
    kind: cutKind(kind),
    message: storable(textOf(() => (known ? error.message : error))).slice(0, MESSAGE_LIMIT),
    stack: storable(known ? textOf(() => error.stack ?? "") : "").slice(-STACK_LIMIT),
    retryable: !(error instanceof Fatal),
    kinds: known ? classesOf(error).filter((name) => name !== kind) : [],
  };
}

/** The names of an error's class and its base classes, the nearest first. */
function classesOf(error: Error): string[] {
  const names: string[] = [];
  let prototype: unknown = Object.getPrototypeOf(error);
  while (prototype instanceof Error || prototype === Error.prototype) {
    const { name } = (prototype as Error).constructor;
    if (name) names.push(cutKind(name));
    prototype = Object.getPrototypeOf(prototype);
  }
  return [...new Set(names)].slice(0, KINDS_LIMIT);
}

function cutKind(name: string): string {
  return storable(name).slice(0, KIND_LIMIT) || "Error";
}

/** Convert to text a thrown value whose conversion may throw. */
function textOf(describe: () => unknown): string {
  try {
    return String(describe());
  } catch {
    return "its text is not available";
  }
}
