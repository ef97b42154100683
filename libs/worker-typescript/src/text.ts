/** Text without what cannot be stored: NUL characters and halves of surrogate pairs. */
export function storable(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\\0");
}
