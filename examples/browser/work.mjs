// What takes a while: one at a time, with a bar, a rate and a way to give it up.

const section = document.querySelector("#work");
const label = document.querySelector("#work-label");
const bar = document.querySelector("#work-bar");
const cancel = document.querySelector("#cancel");
let control;

cancel.addEventListener("click", () => control?.abort());

/** What became of work when other work took its place: nothing to tell the visitor. */
export class Superseded extends Error {
  name = "Superseded";
}

/**
 * Runs `task({ signal, onProgress })` and shows how far it is. `words(done, total)` says so; before
 * anything is known it gets zeros. What ran before is given up.
 */
export async function work(words, task) {
  control?.abort();
  const mine = (control = new AbortController());
  const show = (done, total) => {
    if (control !== mine) return;
    label.textContent = words(done, total);
    if (total > 0) bar.value = done / total;
    else bar.removeAttribute("value");
  };
  show(0, 0);
  section.hidden = false;
  section.scrollIntoView({ block: "nearest" });
  try {
    return await task({ signal: mine.signal, onProgress: show });
  } catch (failure) {
    throw control === mine ? failure : new Superseded();
  } finally {
    if (control === mine) section.hidden = true;
  }
}
