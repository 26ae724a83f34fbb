// Files and folders to passages: paragraphs of prose, each with the file it is from.

import { readFile, readdir, stat } from "node:fs/promises";
import { join, relative } from "node:path";

const TEXT = /\.(md|markdown|mdx|txt|rst|adoc)$/i;
const README = /^readme(\.\w+)?$/i;
const SHORTEST = 60; // characters; a shorter paragraph is a heading or a badge
const LONGEST = 1000; // about the 256 tokens the model reads

/** Passages of every text file in the given files and folders, in a stable order. */
export async function readPassages(paths, { onlyReadmes = false } = {}) {
  const passages = new Map(); // by text: packages that ship together repeat each other
  for (const path of paths) {
    for (const file of await textFiles(path, onlyReadmes)) {
      for (const text of split(await readFile(file, "utf8"))) {
        if (!passages.has(text)) passages.set(text, { text, file: relative(".", file) });
      }
    }
  }
  return [...passages.values()];
}

async function textFiles(path, onlyReadmes) {
  if (!(await stat(path)).isDirectory()) return [path];
  const entries = await readdir(path, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && (onlyReadmes ? README : TEXT).test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

/** Paragraphs without code, markup and tables; long ones cut between sentences. */
function split(text) {
  const prose = text
    .replace(/\r/g, "")
    .replace(/^[ \t]*(```|~~~)[\s\S]*?^[ \t]*\1.*$/gm, "")
    .replace(/<!--[\s\S]*?-->|<[^>]+>/g, "")
    .replace(/!\[[^\]]*\](\([^)]*\)|\[[^\]]*\])/g, "")
    .replace(/\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])/g, "$1")
    .replace(/^(\||\[[^\]]+\]:).*$/gm, "");
  return prose
    .split(/\n\s*\n|\n(?=#|\s*[-*] )/)
    .map((paragraph) =>
      paragraph
        .replace(/^\s*(#+|>|[-*])\s+|\*\*/g, "")
        .replace(/\s+/g, " ")
        .trim(),
    )
    .flatMap((paragraph) => cut(paragraph))
    .filter((passage) => passage.length >= SHORTEST);
}

function cut(paragraph) {
  const passages = [""];
  for (const sentence of paragraph.split(/(?<=[.!?]) /)) {
    if (passages.at(-1).length + sentence.length > LONGEST) passages.push("");
    passages.push(`${passages.pop()} ${sentence}`.trim());
  }
  return passages;
}
