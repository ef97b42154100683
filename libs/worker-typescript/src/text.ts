/** A NUL character as JSON spells it; after an even number of backslashes, or it is only text about one. */
const NUL = /(?<!\\)(?:\\\\)*\\u0000/;

/** Whether encoded JSON holds a NUL character, which cannot be stored. */
export function holdsNul(encoded: string): boolean {
  return NUL.test(encoded);
}

/** Text without what cannot be stored: NUL characters and halves of surrogate pairs. */
export function storable(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\\0");
}
