// The list of what was found.

import { element } from "./element.mjs";

/** Shows passages `{ source, heading, text }` with their scores, in place of the last ones. */
export function showResults(list, found) {
  list.replaceChildren(...found.map(card));
}

/** Marks, in the card at a place of the list, the sentence that answers best. */
export function markSentence(list, place, sentences, best) {
  const parts = sentences.map((sentence, at) => {
    if (at !== best) return sentence;
    const end = sentence.trimEnd().length;
    return [element("mark", {}, sentence.slice(0, end)), sentence.slice(end)];
  });
  list.children[place].querySelector("blockquote").replaceChildren(...parts.flat());
}

function card({ passage: { source, heading, text }, score }) {
  const bar = element("span", { className: "bar" });
  bar.style.setProperty("--score", Math.max(0, score)); // a cosine may be below zero
  const from = [source, heading].filter((part) => part !== "").join(" · ");
  return element(
    "li",
    {},
    element(
      "p",
      { className: "from" },
      element("span", {}, from),
      element("span", { className: "score" }, bar, score.toFixed(2)),
    ),
    element("blockquote", {}, text),
  );
}
