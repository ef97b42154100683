/** A NUL character in JSON; after an odd number of backslashes it is plain text. */
const NUL = /(?<!\\)(?:\\\\)*\\u0000/;

/** Whether encoded JSON holds a NUL character, which cannot be stored. */
export function holdsNul(encoded: string): boolean {
  return NUL.test(encoded);
}

/** Replace characters that cannot be stored: NUL and halves of surrogate pairs. */
export function storable(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\\0");
}

/** The size of a value as JSON. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
