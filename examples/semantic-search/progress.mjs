// A progress bar for a terminal; a line every tenth of the way elsewhere.

const WIDTH = 30;

/** A callback for `onProgress` that shows how far, how fast, and how long it will take. */
export function progressBar(label, out = process.stdout) {
  const start = performance.now();
  let printedTenths = 0;
  return (done, total) => {
    const seconds = (performance.now() - start) / 1000;
    const rate = done / seconds;
    const line = [
      `${String(done).padStart(String(total).length)} of ${total}`,
      `${rate.toFixed(0)} a second`,
      done < total ? `${clock((total - done) / rate)} left` : `done in ${clock(seconds)}`,
    ].join(", ");
    if (out.isTTY) {
      const filled = Math.round((done / total) * WIDTH);
      out.write(
        `\r${label} [${"█".repeat(filled)}${"░".repeat(WIDTH - filled)}] ${line}\x1b[K${done < total ? "" : "\n"}`,
      );
      return;
    }
    const tenths = Math.floor((10 * done) / total);
    if (tenths === printedTenths) return;
    printedTenths = tenths;
    out.write(`${label}: ${line}\n`);
  };
}

function clock(seconds) {
  if (!Number.isFinite(seconds)) return "?";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
