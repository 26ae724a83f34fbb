/** The middle value; of an even count, the upper one of the two. */
export function median(values) {
  return [...values].sort((a, b) => a - b)[values.length >> 1];
}
