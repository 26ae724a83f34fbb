// The page: it opens the model, reads the text, answers questions, and says how that went.
//
// Settings in the address: ?model=…/ (a folder this server has), ?precision=i8, ?wasm=wasm32.

import { element } from "./element.mjs";
import { Engine } from "./engine.mjs";
import { sentences } from "./passages.mjs";
import { markSentence, showResults } from "./results.mjs";
import { questions } from "./sample.mjs";
import { addFiles, allPassages, Unreadable } from "./sources.mjs";
import { count, downloaded, duration, embedded, megabytes, rate } from "./words.mjs";
import { work } from "./work.mjs";

const SHOWN = 5;

const $ = (selector) => document.querySelector(selector);
const settings = Object.fromEntries(new URLSearchParams(location.search));
const engine = new Engine();
let opening; // a promise, once begun
let opened = false;
let passages = []; // those that are indexed, by row
let asked = 0;

$("#query").value = questions[0];
$("#examples").append("Try", ...questions.slice(1).map(example));
$("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  start(search);
});
$("#read").addEventListener("click", () => start(readAndSearch));
$("#text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start(readAndSearch);
});
$("#files").addEventListener("change", () => start(readAndSearch));
$("#choose").addEventListener("change", ({ target }) => {
  const chosen = [...target.files];
  target.value = ""; // so that the same file can be chosen again
  start(() => take(chosen));
});
for (const type of ["dragenter", "dragover", "dragleave", "drop"])
  document.addEventListener(type, dragged);

start(readAndSearch);

/** Runs one of the visitor's wishes; what goes wrong is said on the page, with a way to try again. */
async function start(wish) {
  $("#problem").replaceChildren();
  try {
    await wish();
  } catch ({ name, message }) {
    if (name === "Superseded") return;
    if (name === "AbortError") return say(opened ? "Stopped." : "The model was not loaded.", wish);
    say("");
    $("#problem").replaceChildren(
      element("strong", {}, "That did not work."),
      element("span", {}, message),
      ...(name === "Unreadable" ? [] : [retry(wish)]),
    );
    $("#problem").scrollIntoView({ block: "nearest" }); // on a phone the wish may come from below
  }
}

async function readAndSearch() {
  await open();
  await read();
  await search();
}

/** All calls that need the model wait for the same download. */
function open() {
  return (opening ??= openModel().catch((failure) => {
    opening = undefined;
    throw failure;
  }));
}

async function openModel() {
  say("");
  const model = new URL(settings.model ?? "models/all-MiniLM-L6-v2/", location.href).href;
  const { wasm, precision } = settings;
  const found = await work(downloaded, (how) => engine.open(model, { wasm, precision, ...how }));
  opened = true;
  figure("Module", found.module);
  figure("Model", `${megabytes(found.bytes)}, computing in ${found.precision}`);
  figure("Loaded in", duration(found.milliseconds));
}

async function read() {
  const fresh = allPassages();
  if (fresh.length === 0)
    throw new Unreadable("There is no text to read: paste some, or choose a file.");
  say("");
  const begun = performance.now();
  const { rows, milliseconds } = await work(
    (done, total) => embedded(begun, done, total),
    (how) =>
      engine.index(
        fresh.map(({ text }) => text),
        how,
      ),
  );
  passages = fresh;
  figure("Read", `${count(rows, "passage")} at ${rate(rows, milliseconds)}`);
}

async function search() {
  const query = $("#query").value.trim();
  if (query === "") return;
  if (passages.length === 0) return readAndSearch();
  const mine = ++asked;
  const { nearest, milliseconds } = await engine.search(query, SHOWN);
  if (mine !== asked) return; // a newer question overtook it
  const found = nearest.map(({ row, score }) => ({ passage: passages[row], score }));
  showResults($("#results"), found);
  say(
    `The best ${found.length} of ${count(passages.length, "passage")}, in ${duration(milliseconds)}.`,
  );
  figure("Last question", duration(milliseconds));

  const lists = found.map(({ passage }) => sentences(passage.text));
  const best = await engine.pick(query, lists);
  if (mine !== asked) return;
  best.forEach((at, place) => markSentence($("#results"), place, lists[place], at));
}

async function take(chosen) {
  if (chosen.length === 0) return;
  await addFiles(chosen);
  await readAndSearch();
}

function dragged(event) {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  const leaves = event.type === "drop" || (event.type === "dragleave" && !event.relatedTarget);
  document.body.classList.toggle("dropping", !leaves);
  if (event.type !== "drop") return;
  const chosen = [...event.dataTransfer.files];
  start(() => take(chosen));
}

function example(question) {
  const button = element("button", { type: "button" }, question);
  button.addEventListener("click", () => {
    $("#query").value = question;
    start(search);
  });
  return button;
}

/** Says how things stand; with a wish, also how to have it again. */
function say(text, wish) {
  $("#status").replaceChildren(text, ...(wish ? [" ", retry(wish)] : []));
}

function retry(wish) {
  const button = element("button", { type: "button" }, "Try again");
  button.addEventListener("click", () => start(wish));
  return button;
}

/** A number in the list of figures, in place of the last one of that name. */
function figure(name, value) {
  const id = `figure-${name.toLowerCase().replaceAll(" ", "-")}`;
  const row = element("div", { id }, element("dt", {}, name), element("dd", {}, value));
  const old = document.getElementById(id);
  if (old) old.replaceWith(row);
  else $("#figures").append(row);
}
