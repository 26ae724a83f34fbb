/** The middle value; of an even count, the upper one of the two. */
export function median(values) {
  return sorted(values)[values.length >> 1];
}

/** The smallest value that `percent` percent of the values do not exceed (the nearest rank). */
export function percentile(values, percent) {
  return sorted(values)[Math.max(0, Math.ceil((percent / 100) * values.length) - 1)];
}

function sorted(values) {
  return [...values].sort((a, b) => a - b);
}
