// What is searched: the text in the box, and the files beside it.

import { element } from "./element.mjs";
import { passagesOf } from "./passages.mjs";
import * as sample from "./sample.mjs";

/** What cannot be read, and would not be the next time. */
export class Unreadable extends Error {
  name = "Unreadable";
}

const MOST_BYTES = 20e6; // of one file: more takes a browser too long to be useful

const box = document.querySelector("#text");
const list = document.querySelector("#files");
let files = [];

box.value = sample.text;

/** The passages of everything there is. */
export function allPassages() {
  const pasted = passagesOf(box.value, box.value === sample.text ? "Lodge handbook" : "Your text");
  return [...pasted, ...files.flatMap(({ name, text }) => passagesOf(text, name))];
}

/** Takes files beside the text; those of the visitor displace the sample. Throws for what is not text. */
export async function addFiles(chosen) {
  const added = await Promise.all(Array.from(chosen, readFile));
  if (box.value === sample.text) box.value = "";
  const names = new Set(added.map(({ name }) => name));
  files = [...files.filter(({ name }) => !names.has(name)), ...added];
  showFiles();
}

async function readFile(file) {
  if (file.size > MOST_BYTES)
    throw new Unreadable(
      `${file.name} has ${Math.round(file.size / 1e6)} MB; this page takes up to 20.`,
    );
  const text = await file.text();
  if (text.includes("\0")) throw new Unreadable(`${file.name} is not a text file.`);
  return { name: file.name, text };
}

function showFiles() {
  list.replaceChildren(
    ...files.map((file) => {
      const remove = element("button", { type: "button" }, "Remove");
      remove.ariaLabel = `Remove ${file.name}`;
      remove.addEventListener("click", () => {
        files = files.filter((other) => other !== file);
        showFiles();
        list.dispatchEvent(new Event("change", { bubbles: true }));
      });
      return element("li", {}, element("span", { className: "name" }, file.name), remove);
    }),
  );
}
