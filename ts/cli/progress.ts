/** How long a drawn line stays at least, in milliseconds. */
const PERIOD = 100;

/** How wide the bar is, in characters. */
const WIDTH = 24;

/** A line at the bottom of a terminal that tells how far the work is. */
export class Progress {
  readonly #start = performance.now();
  #drawn = 0;

  /**
   * @param total - How many bytes there are to do; `undefined`: not known.
   */
  constructor(private readonly total: number | undefined) {}

  /** The work is so far. */
  at(bytes: number, texts: number): void {
    const now = performance.now();
    if (now - this.#drawn < PERIOD) return;
    this.#drawn = now;
    const seconds = (now - this.#start) / 1000;
    const parts = [`${texts} texts`, `${Math.round(texts / seconds)} a second`];
    if (this.total) {
      const done = Math.min(bytes / this.total, 1);
      const full = Math.round(done * WIDTH);
      parts.unshift(`${"█".repeat(full)}${"░".repeat(WIDTH - full)} ${Math.floor(done * 100)} %`);
      if (done > 0) parts.push(`${clock((seconds / done) * (1 - done))} left`);
    }
    process.stderr.write(`\r\x1b[K${parts.join("  ")}`);
  }

  /** Removes the line. */
  end(): void {
    process.stderr.write("\r\x1b[K");
  }
}

/** Such as `1:05`. */
function clock(seconds: number): string {
  const whole = Math.ceil(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}
