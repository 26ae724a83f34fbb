// Numbers as the page says them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;

export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)}\u00a0MB`;

export const duration = (milliseconds) =>
  milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;

export const rate = (rows, milliseconds) => `${whole.format(rows / (milliseconds / 1000))} texts/s`;

/** How far a download is. */
export const downloaded = (done, total) =>
  total === 0
    ? "Loading the model…"
    : `Loading the model: ${whole.format(done / 1e6)} of ${megabytes(total)}`;

/** How far an embedding is that began at a time, and how long it may still take. */
export function embedded(start, done, total) {
  if (total === 0) return "Reading the text…";
  const text = `Reading the text: ${whole.format(done)} of ${count(total, "passage")}`;
  const left = ((performance.now() - start) / done) * (total - done);
  return done === 0 || left < 3000 ? text : `${text}, about ${timeLeft(left)} left`;
}

const timeLeft = (milliseconds) =>
  milliseconds < 90e3
    ? `${Math.ceil(milliseconds / 1000)} s`
    : `${Math.ceil(milliseconds / 60e3)} min`;
