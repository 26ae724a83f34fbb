// Semantic search over text files, in one process and without a server.
//
//   npm run demo                                        the READMEs of the installed packages
//   npm run demo -- notes/ draft.md                     your own files and folders
//   npm run demo -- notes/ --query "when do we meet?"   one question, no prompt

import { createInterface } from "node:readline/promises";
import { parseArgs } from "node:util";
import { Executor, Model } from "uform";
import { readPassages } from "./passages.mjs";
import { progressBar } from "./progress.mjs";

/** Asked when there is no terminal to ask at. */
const QUESTION = "How do I check that my package works for people who use types?";

const { values: options, positionals: paths } = parseArgs({
  allowPositionals: true,
  options: {
    query: { type: "string", short: "q" },
    model: { type: "string", default: "models/all-MiniLM-L6-v2" },
    limit: { type: "string", default: "1500" },
    top: { type: "string", default: "5" },
  },
});

const executor = Executor.forRam();
let model;
try {
  const start = performance.now();
  model = await Model.open(options.model, { executor });
  console.log(`Model opened in ${milliseconds(start, performance.now())}`);
  await main();
} finally {
  model?.free();
  executor.free();
}

async function main() {
  const found = await readPassages(paths.length > 0 ? paths : ["node_modules"], {
    onlyReadmes: paths.length === 0,
  });
  const passages = found.slice(0, Number(options.limit));
  if (passages.length === 0) throw new Error(`No text was found in ${paths.join(", ")}.`);
  console.log(`${passages.length} passages of ${found.length} found (--limit takes more or fewer)`);

  const onProgress = progressBar("Embedding");
  const index = await model.encodeText(
    passages.map((passage) => passage.text),
    { executor, onProgress },
  );

  if (options.query !== undefined) return answer(options.query);
  if (!process.stdin.isTTY || !process.stdout.isTTY) return answer(QUESTION);
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  console.log("\nAsk for something; an empty line ends.");
  terminal.setPrompt("> ");
  terminal.prompt();
  for await (const query of terminal) {
    if (query.trim() === "") break;
    await answer(query);
    terminal.prompt();
  }
  terminal.close();

  /** Prints the passages nearest to a query. */
  async function answer(query) {
    const start = performance.now();
    const { data: vector } = await model.encodeText(query, { executor });
    const embedded = performance.now();
    const nearest = search(index, vector).slice(0, Number(options.top));
    const searched = performance.now();

    console.log(`\n“${query}”`);
    for (const { score, row } of nearest) {
      console.log(`\n  ${score.toFixed(3)}  ${passages[row].file}`);
      console.log(`         ${shorten(passages[row].text, 240)}`);
    }
    const times = [milliseconds(start, embedded), milliseconds(embedded, searched)];
    console.log(
      `\n  Query embedded in ${times[0]}, ${index.rows} passages compared in ${times[1]}.`,
    );
  }
}

/** Every row's cosine with the query, best first. The vectors have length 1, so a dot product is the cosine. */
function search(index, vector) {
  const scores = [];
  for (let row = 0; row < index.rows; row++) {
    const passage = index.row(row);
    let score = 0;
    for (let i = 0; i < vector.length; i++) score += vector[i] * passage[i];
    scores.push({ score, row });
  }
  return scores.sort((a, b) => b.score - a.score);
}

function milliseconds(from, to) {
  return `${(to - from).toFixed(1)} ms`;
}

function shorten(text, length) {
  return text.length <= length ? text : `${text.slice(0, length).trimEnd()}…`;
}
